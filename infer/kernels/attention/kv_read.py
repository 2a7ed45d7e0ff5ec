"""Reading keys and values of the cache (kv.py) as f32, in kernels."""

from collections.abc import Sequence

from ..emit.emitter import F32, I8, I16, I32, I64, Emitter, Value, Vec, const
from .kv import CODEBOOK, GROUP, K_LANES, KVType, Plane

VECTOR = Vec(F32, 16)
_INTS, _BYTES = Vec(I32, 16), Vec(I8, 64)
# bits of the codes of 8 values in a u32
SHIFTS = [0, 8, 16, 24, 4, 12, 20, 28]


def rounded_up(e: Emitter, d_head: Value) -> Value:
    """`padded_head` in a kernel."""
    return e.b.and_(e.b.add(d_head, const(I64, 15)), const(I64, -16))


def count_of(e: Emitter, plane: Plane, n: Value) -> Value:
    """`Plane.count` in a kernel."""
    per = plane.per
    return n if per == 1 else e.b.lshr(e.b.add(n, const(I64, per - 1)), const(I64, per.bit_length() - 1))


def plane_offsets(e: Emitter, kind: KVType, n_pad: Value, times: int = 1) -> list[Value]:
    """Byte offset of each plane in a row of n_pad values; in a block of K with times = 16."""
    offsets = [const(I64, 0)]
    for plane in kind.planes[:-1]:
        nbytes = e.b.mul(count_of(e, plane, n_pad), const(I64, plane.size * times))
        offsets.append(e.b.add(offsets[-1], nbytes))
    return offsets


def element_offset(e: Emitter, plane: Plane, d: Value, times: int = 1) -> Value:
    """Byte offset of the element of value d (a multiple of `per`, or in a group) from the first of its plane."""
    index = d if plane.per == 1 else e.b.lshr(d, const(I64, plane.per.bit_length() - 1))
    return e.b.mul(index, const(I64, plane.size * times))


def _as_f32(e: Emitter, kind: KVType, pointer: Value, offset: Value | int = 0) -> Value:
    """16 neighbouring elements of codes that are not packed, as f32."""
    if kind.codes.size == 4:
        return e.load(VECTOR, pointer, offset)
    if kind.codes.size == 1:
        return e.to_f32(e.b.sext(e.load(Vec(I8, 16), pointer, offset), _INTS))
    bits = e.load(Vec(I16, 16), pointer, offset)
    return e.bfloat(bits) if kind.name == "bf16" else e.half(bits)


def _looked_up(e: Emitter, words: Value) -> Value:
    """u32 [16] of codes below 16 in every byte -> of the codebook's values, i8."""
    codes = e.b.bitcast(words, _BYTES)
    parts = [e.lookup16(CODEBOOK, e.part(codes, k, 32)) for k in (0, 32)]
    return e.b.bitcast(e.cat(*parts), _INTS)


def scaled(e: Emitter, x: Value, times: Sequence[Value]) -> Value:
    """Values of codes x with their scale and minimum, as far as the type has them."""
    if len(times) == 2:
        return e.fma(x, times[0], times[1])
    return e.b.fmul(x, times[0]) if times else x


class KeyReader:
    """Reads blocks of K: 16 positions, `step` dimensions at a time.

    Values of dimensions from d_head up to d_pad may be anything finite; types of `step` 1 hold none.
    """

    def __init__(self, e: Emitter, kind: KVType, d_head: Value) -> None:
        self.e, self.kind = e, kind
        self.step = kind.codes.per
        self.width = K_LANES * kind.codes.size  # bytes of the codes of `step` dimensions
        d_pad = rounded_up(e, d_head)
        self.end = d_pad if kind.packed else d_head
        self._offsets = plane_offsets(e, kind, d_pad, K_LANES)

    def stop(self, first: Value) -> Value:
        """End of the group that begins at dimension `first`."""
        return self.e.intr("smin", self.end, self.e.b.add(first, const(I64, GROUP)))

    def times(self, key: Value, first: Value) -> list[Value]:
        """Scales and minima, f32 [16] each, of the group that begins at dimension `first`."""
        e = self.e
        return [e.half(e.load(Vec(I16, K_LANES), place)) for place in self.places_of_times(key, first)]

    def places_of_times(self, key: Value, first: Value) -> list[Value]:
        """Addresses of what `times` reads."""
        b, planes = self.e.b, zip(self.kind.planes, self._offsets, strict=True)
        return [b.add(key, b.add(offset, first)) for plane, offset in planes if plane.per == GROUP]  # 32 bytes for 32

    def codes(self, key: Value, d: Value) -> list[Value]:
        """f32 [16] of each of `step` dimensions from d on, without their scales."""
        e, b = self.e, self.e.b
        if not self.kind.packed:
            return [_as_f32(e, self.kind, key, b.mul(d, const(I64, self.width)))]
        words = e.load(_INTS, key, b.shl(d, const(I64, 3)))
        high = None
        if ".high" in self.kind.has:
            high = b.zext(e.load(Vec(I8, K_LANES), key, self.high_offset(d)), _INTS)
        if self.kind.name == "iq4_nl":
            low = b.and_(words, const(_INTS, 0x0F0F0F0F))
            upper = b.and_(b.lshr(words, const(_INTS, 4)), const(_INTS, 0x0F0F0F0F))
            found = [_looked_up(e, half) for half in (low, upper)]
            return [
                e.to_f32(b.ashr(b.shl(found[j // 4], const(_INTS, 24 - 8 * (j % 4))), const(_INTS, 24)))
                for j in range(8)
            ]
        return [self._code(words, high, j) for j in range(8)]

    def high_offset(self, d: Value) -> Value:
        """Byte offset of the fifth bits of dimension d, a multiple of 8."""
        return self.e.b.add(self._offsets[1], self.e.b.shl(d, const(I64, 1)))

    def code(self, key: Value, d: Value) -> Value:
        """f32 [16] of dimension d, without its scale."""
        e, b = self.e, self.e.b
        if not self.kind.packed:
            return self.codes(key, d)[0]
        words = e.load(_INTS, key, b.shl(b.lshr(d, const(I64, 3)), const(I64, 6)))
        j = b.trunc(b.and_(d, const(I64, 7)), I32)
        shift = b.add(b.shl(b.and_(j, const(I32, 3)), const(I32, 3)), b.and_(j, const(I32, 4)))
        x = b.and_(b.lshr(words, e.splat(shift, 16)), const(_INTS, 15))
        if ".high" in self.kind.has:
            place = b.add(self._offsets[1], b.shl(b.lshr(d, const(I64, 3)), const(I64, 4)))
            high = b.zext(e.load(Vec(I8, K_LANES), key, place), _INTS)
            bit = b.and_(b.lshr(high, e.splat(j, 16)), const(_INTS, 1))
            x = b.or_(x, b.shl(bit, const(_INTS, 4)))
        return e.to_f32(_number(e, self.kind, x))

    def _code(self, words: Value, high: Value | None, j: int) -> Value:
        """f32 [16] of dimension j of words."""
        e, b = self.e, self.e.b
        x = b.and_(b.lshr(words, const(_INTS, SHIFTS[j])), const(_INTS, 15))
        if high is not None:
            bit = b.and_(high, const(_INTS, 1 << j))
            x = b.or_(x, b.shl(bit, const(_INTS, 4 - j)) if j <= 4 else b.lshr(bit, const(_INTS, j - 4)))
        return e.to_f32(_number(e, self.kind, x))


def _number(e: Emitter, kind: KVType, x: Value) -> Value:
    """Codes i32 [16], not negative -> the numbers that they stand for, i32."""
    b = e.b
    if kind.name == "iq4_nl":
        return b.ashr(b.shl(_looked_up(e, x), const(_INTS, 24)), const(_INTS, 24))
    return b.sub(x, const(_INTS, kind.middle)) if kind.middle else x


class CodeWords:
    """Codes of 4 and 5 bits as bytes, for integer products.

    signed   whether a byte is signed: a value of the codebook
    largest  magnitude of a byte
    """

    def __init__(self, e: Emitter, kind: KVType) -> None:
        self.e, self.kind = e, kind
        self.has_high = ".high" in kind.has
        self.signed = kind.name == "iq4_nl"
        self.largest = 127 if self.signed else 31 if self.has_high else 15

    def key_bytes(self, reader: KeyReader, key: Value, d: Value) -> list[Value]:
        """For 16 positions, u32 [16]: codes of dimensions d .. d + 3 in the bytes, and of d + 4 .. d + 7."""
        e, b = self.e, self.e.b
        words = e.load(_INTS, key, b.shl(d, const(I64, 3)))
        halves = [words, b.lshr(words, const(_INTS, 4))]
        halves = [b.and_(x, const(_INTS, 0x0F0F0F0F)) for x in halves]
        if self.has_high:
            # the byte of its position in each byte, then its own bit
            copies = e.shuffle(e.load(Vec(I8, K_LANES), key, reader.high_offset(d)), [i // 4 for i in range(64)])
            halves = [
                b.or_(x, b.bitcast(fifth_of(e, copies, [1 << (j + 4 * k) for j in range(4)] * 16), _INTS))
                for k, x in enumerate(halves)
            ]
        return [self.numbers(x) for x in halves]

    def value_bytes(self, codes: Value, high: Value) -> Value:
        """Codes of 32 values of a row, u32 [8]: of words 0 .. 3 the first four, then the last four. high: address of
        their fifth bits."""
        e, b = self.e, self.e.b
        four = e.load(Vec(I32, 4), codes)
        x = b.lshr(e.cat(four, four), const(Vec(I32, 8), [0] * 4 + [4] * 4))
        x = b.and_(x, const(Vec(I32, 8), 0x0F0F0F0F))
        if self.has_high:
            bits = b.bitcast(e.splat(e.load(I32, high), 8), Vec(I8, 32))
            copies = e.shuffle(bits, [i // 4 for i in range(16)] * 2)
            masks = [1 << (i % 4 + 4 * k) for k in (0, 1) for i in range(16)]
            x = b.or_(x, b.bitcast(fifth_of(e, copies, masks), Vec(I32, 8)))
        return self.numbers(x)

    def numbers(self, words: Value) -> Value:
        """Bytes of codes -> themselves, or values of the codebook."""
        b, n = self.e.b, words.type.count
        if not self.signed:
            return words
        codes = b.bitcast(words, Vec(I8, 4 * n))
        parts = [self.e.lookup16(CODEBOOK, self.e.part(codes, k, 32)) for k in range(0, 4 * n, 32)]
        return b.bitcast(parts[0] if len(parts) == 1 else self.e.cat(*parts), words.type)


def fifth_of(e: Emitter, copies: Value, masks: list[int]) -> Value:
    """16 in every byte whose bit of the mask is set."""
    ty = copies.type
    found = e.b.icmp_unsigned("!=", e.b.and_(copies, const(ty, [m - 256 * (m > 127) for m in masks])), const(ty, 0))
    return e.b.select(found, const(ty, 16), const(ty, 0))


class ValueReader:
    """Addresses of values in blocks of V or, with `blocks` False, in rows of their own (row_store.py)."""

    def __init__(self, e: Emitter, kind: KVType, width: Value, *, blocks: bool = True) -> None:
        self.e, self.kind = e, kind
        n_pad = rounded_up(e, width)
        self.code_row = e.b.mul(e.b.lshr(n_pad, const(I64, 3)), const(I64, kind.eighth))
        self._offsets = plane_offsets(e, kind, n_pad)
        if blocks:  # scales and minima come after 16 rows of codes, for 16 positions each
            n = len(kind.planes) - len(kind.groups)
            self._offsets[n:] = plane_offsets(e, kind, n_pad, K_LANES)[n:]
        self._lanes = K_LANES if blocks else 1

    def addresses(self, base: Value, d: Value) -> list[Value]:
        """Addresses, one per plane, of value d (a multiple of 16) in the first row at `base`."""
        e, places = self.e, []
        for plane, offset in zip(self.kind.planes, self._offsets, strict=True):
            times = self._lanes if plane.per == GROUP else 1
            places.append(e.b.add(base, e.b.add(offset, element_offset(e, plane, d, times))))
        return places


def position_offsets(e: Emitter, kind: KVType, j: Value, step: Value, code_row: Value) -> tuple[Value, Value]:
    """Byte offsets of position j of blocks of V from position 0: of the codes, and of the scales and minima.

    step: bytes of a row; code_row: bytes of its codes.
    """
    b = e.b
    if not kind.quantized:
        return b.mul(j, step), const(I64, 0)
    block, lane = b.mul(b.and_(j, const(I64, -K_LANES)), step), b.and_(j, const(I64, K_LANES - 1))
    return b.add(block, b.mul(lane, code_row)), b.add(block, b.shl(lane, const(I64, 1)))


NO_OFFSETS = (const(I64, 0), const(I64, 0))


def read_values(
    e: Emitter, kind: KVType, at: Sequence[Value], offsets: tuple[Value, Value], n: int, apart: int = 0, lanes: int = 1
) -> list[Value]:
    """n vectors of 16 values. at: `ValueReader.addresses`; offsets: `position_offsets`.

    If there are several vectors, the first begins a group. apart: bytes from vector to vector, for types of floats; 0:
    they are adjacent. lanes: 16 in blocks of V, 1 in single rows.
    """
    vectors = [_codes16(e, kind, at, offsets[0], i, apart) for i in range(n)]
    groups = [e.b.add(base, offsets[1]) for plane, base in zip(kind.planes, at, strict=True) if plane.per == GROUP]
    times = [[_splat_half(e, base, 2 * lanes * g) for base in groups] for g in range((n + 1) // 2)]
    return [scaled(e, x, times[i // 2]) for i, x in enumerate(vectors)]


def _splat_half(e: Emitter, address: Value, offset: int) -> Value:
    """One f16 in 16 lanes of f32. Repeated before it is widened: converting a single f16 would wait for its register's
    previous value."""
    eight = e.half(e.splat(e.load(I16, address, offset), 8))
    return e.cat(eight, eight)


def _codes16(e: Emitter, kind: KVType, at: Sequence[Value], offset: Value, i: int, apart: int) -> Value:
    """Vector i of codes as f32, without scales."""
    b = e.b
    codes = b.add(at[0], offset)
    if not kind.packed:
        return _as_f32(e, kind, codes, i * (apart or 16 * kind.codes.size))
    halves = [e.splat(e.load(I32, codes, 8 * i + 4 * k), 8) for k in (0, 1)]
    ints = Vec(I32, 8)
    halves = [b.and_(b.lshr(x, const(ints, SHIFTS)), const(ints, 15)) for x in halves]
    if ".high" in kind.has:
        high = b.add(at[1], offset)
        for k in (0, 1):
            bits = e.splat(b.zext(e.load(I8, high, 2 * i + k), I32), 8)
            bits = b.and_(b.lshr(bits, const(ints, list(range(8)))), const(ints, 1))
            halves[k] = b.or_(halves[k], b.shl(bits, const(ints, 4)))
    return e.to_f32(_number(e, kind, e.cat(*halves)))
