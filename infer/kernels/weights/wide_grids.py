"""IQ1, IQ2, IQ3 for 512-bit products: sixteen groups of two super-blocks, without a load per codebook entry.

An entry has 8 weights with at most four values, or 4 with at most eight, so it fits 16 bits. The entries' low and high
bytes are two tables. vpermi2b looks up 64 entries at once in 128 bytes of a table; vpmultishiftqb and vpermb turn them
into weights. Processors without AVX-512 VBMI and GFNI use the rules in grids.py.
"""

from collections.abc import Callable, Sequence
from functools import cache

import numpy as np

from hybrid.quant.ggml.formats.grids import grid
from hybrid.quant.ggml.types import TRAITS, GGMLType

from ..emit.emitter import F32, I1, I8, I16, I32, I64, Emitter, Value, Vec, const
from .base import Groups, in_memory

V16I8, V32I8, V64I8 = Vec(I8, 16), Vec(I8, 32), Vec(I8, 64)
V16I16, V32I16, V16I32, V64I1 = Vec(I16, 16), Vec(I16, 32), Vec(I32, 16), Vec(I1, 64)
CHUNK = 128  # table bytes that vpermi2b chooses from
_PARITY = [0x7F, 0x40, 0x20, 0x10, 0x08, 0x04, 0x02, 0x01]  # matrix that adds the parity of seven bits as the eighth


@cache
def _book(kind: GGMLType) -> tuple[tuple[bytes, bytes], list[int], int]:
    """((low bytes, high bytes) of all entries, the value of each field, bits per field)."""
    entries = grid(kind).astype(np.int64)
    values = np.unique(entries)
    bits = 16 // entries.shape[1] if entries.shape[1] == 8 else 3
    assert len(values) <= 1 << bits
    fields = np.searchsorted(values, entries) << bits * np.arange(entries.shape[1])
    words = fields.sum(axis=1).astype("<u2").view(np.uint8).reshape(-1, 2)
    return (words[:, 0].tobytes(), words[:, 1].tobytes()), values.tolist(), bits


def _signed(byte: int) -> int:
    return byte % 256 - 256 if byte % 256 > 127 else byte % 256


def _planes(e: Emitter, kind: GGMLType, low: Value, tops: Sequence[Value]) -> list[Value]:
    """(low, high) bytes of 64 entries. Indices: low eight bits in `low` <64 x i8>, higher bits in `tops`, <64 x i1>
    each."""
    b = e.b
    choices = [None, b.icmp_signed("<", low, const(V64I8, 0)), *tops]  # for tables of 2, 4, 8 and 16 CHUNK
    planes = []
    for name, content in zip(("low", "high"), _book(kind)[0], strict=True):
        table = e.table(f"{name}_bytes_{kind.name.lower()}", content)

        def entries(first: int, n: int, table: Value = table) -> Value:
            if n > CHUNK:
                places = [entries(first + k, n // 2) for k in (0, n // 2)]
                return b.select(choices[(n // CHUNK).bit_length() - 1], places[1], places[0])
            halves = [e.load(V64I8, table, first + k, 64) for k in (0, 64)]
            return e.call("llvm.x86.avx512.vpermi2var.qi.512", V64I8, halves[0], low, halves[1])

        planes.append(entries(0, len(content)))
    return planes


def _weights(e: Emitter, kind: GGMLType, low: Value, tops: Sequence[Value], added: int) -> list[Value]:
    """The weights of 64 entries (times 8 for IQ1) plus `added`, <64 x i8> each."""
    b = e.b
    _, values, bits = _book(kind)
    times = 8 if kind in (GGMLType.IQ1_S, GGMLType.IQ1_M) else 1
    by_field = [_signed(v * times + added) for v in values]
    by_field = (by_field + [0] * ((1 << bits) - len(by_field))) * (64 >> bits)
    planes = _planes(e, kind, low, tops)
    # the words of the first eight of every 16 entries, and of the second eight
    halves = [
        b.bitcast(e.shuffle(planes[0], [i for q in range(h, 64, 16) for k in range(8) for i in (q + k, 64 + q + k)],
                            planes[1]), V32I16)
        for h in (0, 8)
    ]  # fmt: skip
    weights = []
    if bits == 2:
        amounts = const(V64I8, list(range(0, 16, 2)) * 8)
        spread = [e.shuffle(halves[j % 2], [j // 2 * 8 + i // 4 for i in range(32)]) for j in range(8)]
    else:
        amounts = const(V64I8, [0, 3, 6, 9, 16, 19, 22, 25] * 8)
        dwords = [b.bitcast(v, V16I32) for v in halves]
        order = [[h + 4 * j + i // 2 for h in (0, 16) for i in range(8)] for j in range(4)]
        spread = [e.shuffle(dwords[0], places, dwords[1]) for places in order]
    for v in spread:
        fields = e.call("llvm.x86.avx512.pmultishift.qb.512", V64I8, amounts, b.bitcast(v, V64I8))
        weights.append(e.call("llvm.x86.avx512.permvar.qi.512", V64I8, const(V64I8, by_field), fields))
    return weights


def _spread(e: Emitter, v: Value, k: int) -> Value:
    """Bytes 8 k to 8 k + 7, each repeated eight times."""
    return e.shuffle(v, [8 * k + i // 8 for i in range(64)])


def _negated(e: Emitter, codes: list[Value], signs: Sequence[Value], added: int) -> list[Value]:
    """Codes (weights plus `added`), with the weights negated where a bit of `signs` is set."""
    twice = const(V64I8, _signed(2 * added))
    return [e.b.select(m, e.b.sub(twice, v), v) for v, m in zip(codes, signs, strict=True)]


def _bits_of(e: Emitter, p: Value, v: Value) -> list[Value]:
    """<64 x i8> -> 8 x <64 x i1>."""
    place = in_memory(e, p, [v])
    return [e.b.bitcast(e.load(I64, place, 8 * k), V64I1) for k in range(8)]


def _stored_bits(e: Emitter, kind: GGMLType, p: Value, offset: int) -> list[Value]:
    """32 bytes of each of two blocks -> 8 x <64 x i1>."""
    places = [k * TRAITS[kind].nbytes + offset + 8 * j for k in (0, 1) for j in range(4)]
    return [e.b.bitcast(e.load(I64, p, place), V64I1) for place in places]


def _affine(e: Emitter, v: Value, rows: list[int]) -> Value:
    return e.call("llvm.x86.vgf2p8affineqb.512", V64I8, v, const(V64I8, [_signed(r) for r in rows] * 8), const(I8, 0))


def _seven_bit_signs(e: Emitter, words: Value) -> Value:
    """Four times 7 bits of each of <16 x i32>, with their parity as the eighth bit: <64 x i8>."""
    amounts = const(V64I8, [0, 7, 14, 21, 32, 39, 46, 53] * 8)
    fields = e.call("llvm.x86.avx512.pmultishift.qb.512", V64I8, amounts, e.b.bitcast(words, V64I8))
    return _affine(e, fields, _PARITY)


def _both(e: Emitter, kind: GGMLType, p: Value, offset: int, ty: Vec) -> Value:
    """A vector of each of two blocks, joined."""
    return e.cat(*(e.load(ty, p, k * TRAITS[kind].nbytes + offset) for k in (0, 1)))


def _d(e: Emitter, kind: GGMLType, p: Value, factor: float) -> Value:
    first, second = (e.load(I16, p, k * TRAITS[kind].nbytes) for k in (0, 1))
    return _of_each(e, first, second, factor)


def _of_each(e: Emitter, first: Value, second: Value, factor: float) -> Value:
    """<16 x f32>: first * factor in eight lanes, second * factor in eight; first, second are the blocks' f16."""
    v = e.b.insert_element(const(Vec(I16, 2), 0), first, const(I32, 0))
    d = e.half(e.b.insert_element(v, second, const(I32, 1)))
    return e.shuffle(e.b.fmul(d, const(Vec(F32, 2), factor)), [0] * 8 + [1] * 8)


def _odd(e: Emitter, n: Value) -> Value:
    return e.b.add(e.b.shl(n, const(n.type, 1)), const(n.type, 1))


def _scale(e: Emitter, kind: GGMLType, p: Value, factor: float, numbers: Value) -> Value:
    return e.b.fmul(_d(e, kind, p, factor), e.to_f32(_odd(e, numbers)))


def _nibbles(e: Emitter, v: Value) -> Value:
    """The 4-bit numbers of bytes, low first, one per i16 lane."""
    b, n = e.b, v.type.count
    twice = e.shuffle(v, [k // 2 for k in range(2 * n)])
    wide = Vec(I16, 2 * n)
    return b.and_(b.lshr(b.zext(twice, wide), const(wide, [0, 4] * n)), const(wide, 15))


def _set(e: Emitter, v: Value, bits: list[int]) -> Value:
    mask = const(V64I8, [_signed(bit) for bit in bits] * (64 // len(bits)))
    return e.b.icmp_unsigned("!=", e.b.and_(v, mask), const(V64I8, 0))


def _iq2_xxs(e: Emitter, p: Value) -> Groups:
    kind = GGMLType.IQ2_XXS
    a, c = (e.load(V16I32, p, k * TRAITS[kind].nbytes + 2) for k in (0, 1))
    places, words = (e.shuffle(a, list(range(h, 32, 2)), c) for h in (0, 1))
    codes = _weights(e, kind, e.b.bitcast(places, V64I8), [], 128)
    scale = _scale(e, kind, p, 0.125, e.b.lshr(words, const(V16I32, 28)))
    return Groups(_negated(e, codes, _bits_of(e, p, _seven_bit_signs(e, words)), 128), scale, [])


def _iq2_xs(e: Emitter, p: Value) -> Groups:
    kind = GGMLType.IQ2_XS
    a, c = (e.load(V64I8, p, k * TRAITS[kind].nbytes + 2) for k in (0, 1))
    low, high = (e.shuffle(a, list(range(h, 128, 2)), c) for h in (0, 1))
    codes = _weights(e, kind, low, [_set(e, high, [1])], 128)
    signs = _affine(e, high, [0xFE, *(1 << k for k in range(7, 0, -1))])
    subs = _odd(e, _nibbles(e, _both(e, kind, p, 66, Vec(I8, 8))))
    return Groups(_negated(e, codes, _bits_of(e, p, signs), 128), _d(e, kind, p, 0.125), [], subs)


def _iq2_s(e: Emitter, p: Value) -> Groups:
    kind = GGMLType.IQ2_S
    top = e.shuffle(_both(e, kind, p, 66, Vec(I8, 8)), [k // 4 for k in range(64)])
    tops = [_set(e, top, [bit << k for k in (0, 2, 4, 6)]) for bit in (1, 2)]
    codes = _weights(e, kind, _both(e, kind, p, 2, V32I8), tops, 128)
    subs = _odd(e, _nibbles(e, _both(e, kind, p, 74, Vec(I8, 8))))
    return Groups(_negated(e, codes, _stored_bits(e, kind, p, 34), 128), _d(e, kind, p, 0.125), [], subs)


def _iq3_xxs(e: Emitter, p: Value) -> Groups:
    kind = GGMLType.IQ3_XXS
    codes = [v for k in (0, 1) for v in _weights(e, kind, e.load(V64I8, p, k * TRAITS[kind].nbytes + 2), [], 128)]
    words = _both(e, kind, p, 66, Vec(I32, 8))
    scale = _scale(e, kind, p, 0.25, e.b.lshr(words, const(V16I32, 28)))
    return Groups(_negated(e, codes, _bits_of(e, p, _seven_bit_signs(e, words)), 128), scale, [])


def _iq3_s(e: Emitter, p: Value) -> Groups:
    kind, codes = GGMLType.IQ3_S, []
    for k in (0, TRAITS[GGMLType.IQ3_S].nbytes):
        top = e.b.bitcast(e.load(I64, p, k + 66), V64I1)
        codes += _weights(e, kind, e.load(V64I8, p, k + 2), [top], 16)
    numbers = e.b.zext(_nibbles(e, _both(e, kind, p, 106, Vec(I8, 4))), V16I32)
    scale = _scale(e, kind, p, 1.0, numbers)
    return Groups(_negated(e, codes, _stored_bits(e, kind, p, 74), 16), scale, [])


def _iq1(e: Emitter, kind: GGMLType, low: Value, fields: Value, flags: Value) -> list[Value]:
    """Weights in eighths, plus 1 (minus 1 for entries whose byte in `flags` is -1, not 0), plus 16."""
    codes = _weights(e, kind, low, [_set(e, fields, [bit]) for bit in (1, 2, 4)], 17)
    moved = e.b.and_(flags, const(V64I8, -2))
    return [e.b.add(v, _spread(e, moved, k)) for k, v in enumerate(codes)]


def _fields(e: Emitter, words: Value, amounts: list[int]) -> Value:
    """Eight bits of each pair of <16 x i16> from each bit offset in `amounts` on."""
    pairs = e.b.zext(e.b.bitcast(words, Vec(I32, 8)), Vec(I64, 8))
    return e.call("llvm.x86.avx512.pmultishift.qb.512", V64I8, const(V64I8, amounts * 8), e.b.bitcast(pairs, V64I8))


def _iq1_s(e: Emitter, p: Value) -> Groups:
    kind, b = GGMLType.IQ1_S, e.b
    words = _both(e, kind, p, 34, Vec(I16, 8))
    flags = b.bitcast(b.sext(b.ashr(words, const(V16I16, 15)), V16I32), V64I8)
    fields = _fields(e, words, [0, 3, 6, 9, 16, 19, 22, 25])
    codes = _iq1(e, kind, _both(e, kind, p, 2, V32I8), fields, flags)
    numbers = b.and_(b.lshr(b.zext(words, V16I32), const(V16I32, 12)), const(V16I32, 7))
    return Groups(codes, _scale(e, kind, p, 0.125, numbers), [])


def _iq1_m(e: Emitter, p: Value) -> Groups:
    kind, b = GGMLType.IQ1_M, e.b
    fields = _fields(e, _both(e, kind, p, 32, Vec(I16, 8)), list(range(0, 32, 4)))
    codes = _iq1(e, kind, _both(e, kind, p, 0, V32I8), fields, _affine(e, fields, [8] * 8))
    scales = []
    for k in (0, 1):
        bits = e.load(I64, p, k * TRAITS[kind].nbytes + 48)
        parts = [b.and_(b.lshr(bits, const(I64, 12 * j + 12)), const(I64, 15 << 4 * j)) for j in range(4)]
        scales.append(b.trunc(b.or_(b.or_(parts[0], parts[1]), b.or_(parts[2], parts[3])), I16))
    words = e.shuffle(_both(e, kind, p, 48, Vec(I16, 4)), [k // 4 for k in range(32)])
    numbers = b.and_(b.lshr(words, const(V32I16, [0, 3, 6, 9] * 8)), const(V32I16, 7))
    return Groups(codes, _of_each(e, scales[0], scales[1], 0.125), [], _odd(e, numbers))


WIDE_GRIDS: dict[GGMLType, Callable[[Emitter, Value], Groups]] = {
    GGMLType.IQ1_S: _iq1_s,
    GGMLType.IQ1_M: _iq1_m,
    GGMLType.IQ2_XXS: _iq2_xxs,
    GGMLType.IQ2_XS: _iq2_xs,
    GGMLType.IQ2_S: _iq2_s,
    GGMLType.IQ3_XXS: _iq3_xxs,
    GGMLType.IQ3_S: _iq3_s,
}
