"""Ternary and small types for 512-bit products: codes of sixteen groups, for processors with AVX-512 VBMI and GFNI."""

from collections.abc import Callable

import numpy as np

from hybrid.quant.ggml.types import TRAITS, GGMLType

from ..emit.emitter import I8, I16, I64, Emitter, Value, Vec, const
from .pairs import bits

V8I16, V8I64, V64I8 = Vec(I16, 8), Vec(I64, 8), Vec(I8, 64)


def _shifted(e: Emitter, v: Value, amounts: list[int], mask: int = 3) -> Value:
    """Byte i: 8 bits of its 64-bit lane of v, from bit amounts[i] on, masked with `mask`."""
    fields = e.call("llvm.x86.avx512.pmultishift.qb.512", V64I8, const(V64I8, amounts), e.b.bitcast(v, V64I8))
    return e.b.and_(fields, const(V64I8, mask))


def _q1_0(e: Emitter, p: Value) -> list[Value]:
    """Codes 0 and 2, with a bias of 1."""
    nbytes = TRAITS[GGMLType.Q1_0].nbytes
    fields = [e.splat(e.load(I64, p, k * nbytes + 2 + 8 * h), 8) for k in range(4) for h in (0, 1)]
    return [_shifted(e, v, [(i - 1) % 64 for i in range(64)], 2) for v in fields]


def _fours(kind: GGMLType) -> Callable[[Emitter, Value], list[Value]]:
    """The rule for four 2-bit codes in a byte, after two bytes of scale."""
    block, nbytes = TRAITS[kind].block, TRAITS[kind].nbytes

    def codes(e: Emitter, p: Value) -> list[Value]:
        places = [k * nbytes + 2 + o for k in range(512 // block) for o in range(0, block // 4, 16)]
        return [_shifted(e, e.b.zext(e.load(V8I16, p, o), V8I64), list(range(0, 16, 2)) * 8) for o in places]

    return codes


def _digits() -> tuple[bytes, bytes]:
    """Tables for every byte value of base-3 numbers: the first four digits, two bits each, and the fifth digit."""
    digits = [(np.arange(256) * 3**n % 256 * 3 >> 8) << 2 * (n % 4) for n in range(5)]
    return sum(digits[:4]).astype(np.uint8).tobytes(), digits[4].astype(np.uint8).tobytes()


class _TernaryBytes:
    """The digits of base-3 numbers in 64 bytes from p on."""

    def __init__(self, e: Emitter, p: Value, begin: int) -> None:
        self.e, self.begin, self.planes = e, begin, []
        raw = e.load(V64I8, p, begin)
        for name, content in zip(("first", "fifth"), _digits(), strict=True):
            table = e.table(f"{name}_digits", content)
            parts = [e.load(V64I8, table, k, 64) for k in range(0, 256, 64)]
            halves = [e.call("llvm.x86.avx512.vpermi2var.qi.512", V64I8, parts[k], raw, parts[k + 1]) for k in (0, 2)]
            self.planes.append(e.b.select(e.b.icmp_signed("<", raw, const(V64I8, 0)), halves[1], halves[0]))

    def codes(self, at: int, bytes_: list[int], digits: list[int]) -> Value:
        """<64 x i8>: digit digits[i] of byte bytes_[i] of the block that begins `at` bytes after p."""
        places = [at - self.begin + k + 64 * (n == 4) for k, n in zip(bytes_, digits, strict=True)]
        shifts = [2 * (n % 4) for n in digits]
        v = self.e.shuffle(self.planes[0], places, self.planes[1] if 4 in digits else None)
        if all(len(set(shifts[i : i + 8])) == 1 for i in range(0, 64, 8)):
            return bits(self.e, v, shifts[::8], 2)
        return _shifted(self.e, v, [8 * (i % 8) + shift for i, shift in enumerate(shifts)])


def _tq1_0(e: Emitter, p: Value) -> list[Value]:
    nbytes, groups = TRAITS[GGMLType.TQ1_0].nbytes, []
    for at, begin in ((0, 0), (nbytes, 2 * nbytes - 64)):
        ternary = _TernaryBytes(e, p, begin)
        whole, half, last = list(range(32)), list(range(32, 48)), list(range(48, 52))
        groups += [ternary.codes(at, whole * 2, [n] * 32 + [n + 1] * 32) for n in (0, 2)]
        groups.append(ternary.codes(at, whole + half * 2, [4] * 32 + [0] * 16 + [1] * 16))
        ends = [n for n in range(4) for _ in last]
        groups.append(ternary.codes(at, half * 3 + last * 4, [2] * 16 + [3] * 16 + [4] * 16 + ends))
    return groups


def _ptq1_0(e: Emitter, p: Value) -> list[Value]:
    nbytes, groups = TRAITS[GGMLType.PTQ1_0].nbytes, []
    first, second, last = list(range(16)), list(range(16, 24)), [24, 25]
    for at in (0, 2 * nbytes):
        ternary = _TernaryBytes(e, p, min(at, 4 * nbytes - 64))  # two blocks
        for block in (at, at + nbytes):
            groups.append(ternary.codes(block, first * 4, [n for n in range(4) for _ in first]))
            digits = [4] * 16 + [n for n in range(5) for _ in second] + [n for n in range(4) for _ in last]
            groups.append(ternary.codes(block, first + second * 5 + last * 4, digits))
    return groups


WIDE_SMALL: dict[GGMLType, Callable[[Emitter, Value], list[Value]]] = {
    GGMLType.Q1_0: _q1_0,
    GGMLType.Q2_0: _fours(GGMLType.Q2_0),
    GGMLType.PQ2_0: _fours(GGMLType.PQ2_0),
    GGMLType.TQ1_0: _tq1_0,
    GGMLType.PTQ1_0: _ptq1_0,
}
