"""Ternary and 2-bit types for 512-bit products, on processors with AVX-512 VBMI and GFNI: codes of sixteen groups.

A register of `QWORDS` has eight codes of each of eight groups: qword l of register j has qword j of group l, of the
first eight groups in registers 0 to 3, of the others in 4 to 7. So the products of four registers add up to two sums
per group, and nothing is added across lanes before that. pack.py sorts columns so for one column.
"""

from collections.abc import Callable

import numpy as np

from hybrid.quant.ggml.types import TRAITS, GGMLType

from ..emit.emitter import I8, I64, Emitter, Value, Vec, const
from .pairs import bits

V8I64, V64I8 = Vec(I64, 8), Vec(I8, 64)


def _shifted(e: Emitter, v: Value, amounts: list[int], mask: int = 3) -> Value:
    """Byte i: 8 bits of its 64-bit lane of v, from bit amounts[i] on, masked with `mask`."""
    fields = e.call("llvm.x86.avx512.pmultishift.qb.512", V64I8, const(V64I8, amounts), e.b.bitcast(v, V64I8))
    return e.b.and_(fields, const(V64I8, mask))


def _q1_0(e: Emitter, p: Value) -> list[Value]:
    """Codes 0 and 2, with a bias of 1."""
    nbytes = TRAITS[GGMLType.Q1_0].nbytes
    fields = [e.splat(e.load(I64, p, k * nbytes + 2 + 8 * h), 8) for k in range(4) for h in (0, 1)]
    return [_shifted(e, v, [(i - 1) % 64 for i in range(64)], 2) for v in fields]


def _fours(kind: GGMLType) -> "Rule":
    """The rule for four 2-bit codes in a byte, after two bytes of scale: a qword of a block is a group."""
    block, nbytes = TRAITS[kind].block, TRAITS[kind].nbytes

    def codes(e: Emitter, p: Value) -> list[Value]:
        parts = [e.load(Vec(I64, block // 32), p, k * nbytes + 2) for k in range(512 // block)]
        while len(parts) > 2:
            parts = [e.cat(parts[k], parts[k + 1]) for k in range(0, len(parts), 2)]
        return [_shifted(e, v, list(range(16 * j, 16 * j + 16, 2)) * 8) for v in parts for j in range(4)]

    return codes


def _tq2_0(e: Emitter, p: Value) -> list[Value]:
    """32 bytes have 2 bits of each of four groups, the lowest first."""
    blocks = [e.load(V8I64, p, k * TRAITS[GGMLType.TQ2_0].nbytes) for k in range(2)]
    qwords = [e.b.bitcast(e.shuffle(v, [j] * 4 + [4 + j] * 4), V64I8) for v in blocks for j in range(4)]
    return [bits(e, v, (0, 2, 4, 6, 0, 2, 4, 6), 2) for v in qwords]


def _digits() -> tuple[bytes, bytes]:
    """Tables for every byte value of base-3 numbers: the first four digits, two bits each, and the fifth digit."""
    digits = [(np.arange(256) * 3**n % 256 * 3 >> 8) << 2 * (n % 4) for n in range(5)]
    return sum(digits[:4]).astype(np.uint8).tobytes(), digits[4].astype(np.uint8).tobytes()


def _base_3(kind: GGMLType, runs: tuple[int, ...]) -> "Rule":
    """The rule for base-3 numbers: the weights of a block are all digits of the first run of bytes (the first digit of
    each byte, the second of each...), then of the next run; bytes of the last run have four digits, others five."""
    nbytes, ends = TRAITS[kind].nbytes, np.cumsum(runs)
    order = [
        (byte, digit)
        for end, n in zip(ends, runs, strict=True)
        for digit in range(5 - (end == ends[-1]))
        for byte in range(end - n, end)
    ]
    per_eight = 256 // TRAITS[kind].block

    def codes(e: Emitter, p: Value) -> list[Value]:
        registers = []
        for first in (0, per_eight * nbytes):
            begin = min(first, 2 * per_eight * nbytes - 64)
            raw, planes = e.load(V64I8, p, begin), []
            for name, content in zip(("first", "fifth"), _digits(), strict=True):
                table = e.table(f"{name}_digits", content)
                parts = [e.load(V64I8, table, k, 64) for k in range(0, 256, 64)]
                halves = [
                    e.call("llvm.x86.avx512.vpermi2var.qi.512", V64I8, parts[k], raw, parts[k + 1]) for k in (0, 2)
                ]
                planes.append(e.b.select(e.b.icmp_signed("<", raw, const(V64I8, 0)), halves[1], halves[0]))
            weights = [(k * nbytes + first - begin + at, n) for k in range(per_eight) for at, n in order]
            for j in range(4):
                chosen = [weights[32 * group + 8 * j + i] for group in range(8) for i in range(8)]
                places, shifts = [at + 64 * (n == 4) for at, n in chosen], [2 * (n % 4) for _, n in chosen]
                v = e.shuffle(planes[0], places, planes[1] if max(places) > 63 else None)
                if all(len(set(shifts[i : i + 8])) == 1 for i in range(0, 64, 8)):
                    registers.append(bits(e, v, shifts[::8], 2))
                else:
                    registers.append(_shifted(e, v, [8 * (i % 8) + shift for i, shift in enumerate(shifts)]))
        return registers

    return codes


Rule = Callable[[Emitter, Value], list[Value]]
WIDE_SMALL: dict[GGMLType, Rule] = {GGMLType.Q1_0: _q1_0}
QWORDS: dict[GGMLType, Rule] = {
    GGMLType.Q2_0: _fours(GGMLType.Q2_0),
    GGMLType.PQ2_0: _fours(GGMLType.PQ2_0),
    GGMLType.TQ2_0: _tq2_0,
    GGMLType.TQ1_0: _base_3(GGMLType.TQ1_0, (32, 16, 4)),
    GGMLType.PTQ1_0: _base_3(GGMLType.PTQ1_0, (16, 8, 2)),
}
