"""TQ1_0, Q1_0 and Q2_0 for 512-bit products: codes of sixteen groups, for processors with AVX-512 VBMI and GFNI."""

from collections.abc import Callable

import numpy as np

from hybrid.quant.ggml.types import TRAITS, GGMLType

from ..emit.emitter import I8, I16, I64, Emitter, Value, Vec, const

V8I16, V8I64, V64I8 = Vec(I16, 8), Vec(I64, 8), Vec(I8, 64)


def _shifted(e: Emitter, v: Value, amounts: list[int], mask: int = 3) -> Value:
    """Byte i: 8 bits of its 64-bit lane of v, from bit amounts[i] on, masked with `mask`."""
    fields = e.call("llvm.x86.avx512.pmultishift.qb.512", V64I8, const(V64I8, amounts), e.b.bitcast(v, V64I8))
    return e.b.and_(fields, const(V64I8, mask))


def _q1_0(e: Emitter, p: Value) -> list[Value]:
    """Codes 0 and 2, with a bias of 1."""
    nbytes = TRAITS[GGMLType.Q1_0].nbytes
    bits = [e.splat(e.load(I64, p, k * nbytes + 2 + 8 * h), 8) for k in range(4) for h in (0, 1)]
    return [_shifted(e, v, [(i - 1) % 64 for i in range(64)], 2) for v in bits]


def _q2_0(e: Emitter, p: Value) -> list[Value]:
    nbytes = TRAITS[GGMLType.Q2_0].nbytes
    words = [e.b.zext(e.load(V8I16, p, k * nbytes + 2), V8I64) for k in range(8)]
    return [_shifted(e, v, list(range(0, 16, 2)) * 8) for v in words]


def _digits() -> tuple[bytes, bytes]:
    """Tables for every byte value of TQ1_0: the first four digits, two bits each, and the fifth digit."""
    digits = [(np.arange(256) * 3**n % 256 * 3 >> 8) << 2 * (n % 4) for n in range(5)]
    return sum(digits[:4]).astype(np.uint8).tobytes(), digits[4].astype(np.uint8).tobytes()


def _tq1_0(e: Emitter, p: Value) -> list[Value]:
    b, nbytes, groups = e.b, TRAITS[GGMLType.TQ1_0].nbytes, []
    for begin, at in ((0, 0), (2 * nbytes - 64, 64 - nbytes)):  # 64 bytes from `begin` on; a block begins at byte `at`
        raw = e.load(V64I8, p, begin)
        planes = []
        for name, content in zip(("first", "fifth"), _digits(), strict=True):
            table = e.table(f"{name}_digits", content)
            parts = [e.load(V64I8, table, k, 64) for k in range(0, 256, 64)]
            halves = [e.call("llvm.x86.avx512.vpermi2var.qi.512", V64I8, parts[k], raw, parts[k + 1]) for k in (0, 2)]
            planes.append(b.select(b.icmp_signed("<", raw, const(V64I8, 0)), halves[1], halves[0]))

        def codes(bytes_: list[int], digits: list[int], at: int = at, planes: list[Value] = planes) -> Value:
            """Codes: digit digits[i] of byte bytes_[i] of the block."""
            places = [at + k + 64 * (n == 4) for k, n in zip(bytes_, digits, strict=True)]
            amounts = [8 * (i % 8) + 2 * (n % 4) for i, n in enumerate(digits)]
            return _shifted(e, e.shuffle(planes[0], places, planes[1] if 4 in digits else None), amounts)

        whole, half, last = list(range(32)), list(range(32, 48)), list(range(48, 52))
        groups += [codes(whole * 2, [n] * 32 + [n + 1] * 32) for n in (0, 2)]
        groups.append(codes(whole + half * 2, [4] * 32 + [0] * 16 + [1] * 16))
        ends = [n for n in range(4) for _ in last]
        groups.append(codes(half * 3 + last * 4, [2] * 16 + [3] * 16 + [4] * 16 + ends))
    return groups


WIDE_SMALL: dict[GGMLType, Callable[[Emitter, Value], list[Value]]] = {
    GGMLType.Q1_0: _q1_0,
    GGMLType.Q2_0: _q2_0,
    GGMLType.TQ1_0: _tq1_0,
}
