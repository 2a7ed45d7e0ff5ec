"""Writing keys and values into the cache (kv.py).

Types of 8 bits and fewer are written in the basis of a Walsh-Hadamard transform (rows/hadamard.py, without signs): the
values of a head then are of like size, and rounding loses least. Queries get the transform of the keys, and results the
one of the values, so nothing else changes.

Rounding of a group of 32 values x, padded with zeros:

    q8_0          scale = max |x| / 127 in f16, code = rint(x / scale)
    q4_0, q5_0    scale = -x / 8 (-x / 16) of the x of largest magnitude
    iq4_nl        scale = -x / 127 of the x of largest magnitude
    q4_1, q5_1    minimum = min x, scale = (max x - min x) / 15 (/ 31)

The types of 4 and 5 bits then take the nearest codes, and the scale (and minimum) of least squares for them. Relative
error of normal values: q4_0 8.46 %, iq4_nl 7.83 %, q4_1 7.58 %, q5_0 4.21 %, q5_1 3.68 %; by llama.cpp's rules 8.60,
7.87, 7.82, 4.28 and 3.79 %. A second round lowers the error further and clips the largest values: KL divergence of
Gemma 3 270M in q5_0 rose from 0.0386 to 0.0444.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from ..build.jit import Kernel, kernel, variant
from ..emit.emitter import F32, I8, I16, I32, I64, Emitter, Value, Vec, const, emit, ldi
from ..emit.fields import Address, Int
from ..rows.hadamard import transform_row
from .kv import CODEBOOK, F32_KV, GROUP, K_LANES, PAGE, KVType, row_size
from .kv_read import SHIFTS, VECTOR, count_of, element_offset, plane_offsets

_INTS = Vec(I32, 16)
LARGEST = 1e30  # larger values are rounded as this one: no sum of 32 overflows


def store_scratch_bytes(d_head: int) -> int:
    """Scratch of `kv_store` for one thread: a row as f32, padded to whole groups, and as stored."""
    return 4 * (-(-d_head // GROUP) * GROUP) + F32_KV.row_bytes(d_head)


@emit("i64,i64,i64->void")
def pad_row(e, source, target, n):
    """target f32 [n rounded up to 32] = source f32 [n], then zeros."""
    b = e.b
    whole = b.and_(n, const(I64, -16))

    def copy(ty: Any) -> Any:
        def body(d: Value, _: list[Value]) -> None:
            place = b.shl(d, const(I64, 2))
            e.store(e.load(ty, source, place), target, place)

        return body

    last = b.and_(n, const(I64, -GROUP))
    with b.if_then(b.icmp_signed("<", last, n)):
        for place in (0, 64):
            e.store(const(VECTOR, 0.0), b.add(target, b.shl(last, const(I64, 2))), place)
    e.loop(whole, copy(VECTOR), step=16)
    e.loop(n, copy(F32), start=whole)


def _to_half(e: Emitter, x: Value) -> Value:
    """f32 lanes -> bits of f16, i16: nearest even; finite values saturate, a NaN becomes the quiet one.

    In integers, the same on every target: without F16C, LLVM would call a function that not every system has.
    """
    b = e.b
    ty = Vec(I32, x.type.count)
    bits = b.bitcast(x, ty)
    size = b.and_(bits, const(ty, 0x7FFFFFFF))
    special = b.icmp_unsigned(">=", size, const(ty, 0x7F800000))
    largest = const(ty, 0x477FE000)  # 65504
    bounded = b.select(b.icmp_unsigned(">", size, largest), largest, size)
    # add half a unit of the last bit kept, less one if that bit is even; lower the exponent by 112
    odd = b.and_(b.lshr(bounded, const(ty, 13)), const(ty, 1))
    normal = b.lshr(b.sub(b.add(bounded, b.add(odd, const(ty, 0xFFF))), const(ty, 112 << 23)), const(ty, 13))
    # below 2^-14: added to 1/2, whose last bit is 2^-24, the smallest f16
    shifted = b.fadd(b.bitcast(bounded, x.type), const(x.type, 0.5))
    small = b.sub(b.bitcast(shifted, ty), const(ty, 0x3F000000))
    half = b.select(b.icmp_unsigned("<", bounded, const(ty, 0x38800000)), small, normal)
    infinite = b.icmp_unsigned("==", size, const(ty, 0x7F800000))
    half = b.select(special, b.select(infinite, const(ty, 0x7C00), const(ty, 0x7E00)), half)
    sign = b.and_(b.lshr(bits, const(ty, 16)), const(ty, 0x8000))
    return b.trunc(b.or_(half, sign), Vec(I16, x.type.count))


def _rounded_half(e: Emitter, x: Value) -> tuple[Value, Value]:
    """A scalar f32 -> (bits of f16, the f16 as f32)."""
    half = _to_half(e, e.splat(x, 8))
    return e.lane(half, 0), e.lane(e.half(half), 0)


def _inverse(e: Emitter, x: Value) -> Value:
    """1 / x in 16 lanes; 0 for 0 and NaN."""
    usable = e.b.fcmp_ordered("!=", x, const(F32, 0.0))
    return e.splat(e.b.select(usable, e.b.fdiv(const(F32, 1.0), x), const(F32, 0.0)), 16)


def _rounded(e: Emitter, x: Value, low: float, high: float) -> Value:
    """Nearest integers in low .. high, as f32; maxnum and minnum turn NaN into a number."""
    x = e.intr("rint", x)
    return e.intr("minnum", e.intr("maxnum", x, const(VECTOR, low)), const(VECTOR, high))


def _total(e: Emitter, parts: Sequence[Value]) -> Value:
    """Sum of the lanes of two vectors."""
    return e.halving_sum(e.b.fadd(*parts))


class _Group:
    """Two vectors of 16 values, limited to +-LARGEST."""

    def __init__(self, e: Emitter, source: Value, first: Value) -> None:
        self.e, b = e, e.b
        place = b.shl(first, const(I64, 2))
        given = [e.load(VECTOR, source, b.add(place, const(I64, 64 * k))) for k in (0, 1)]
        check = const(VECTOR, 0.0)
        for x in given:
            check = e.fma(x, const(VECTOR, 0.0), check)  # 0 times infinity or NaN is NaN
        self.finite = b.fcmp_ordered("==", e.halving_sum(check), const(F32, 0.0))
        self.x = [e.intr("minnum", e.intr("maxnum", x, const(VECTOR, -LARGEST)), const(VECTOR, LARGEST)) for x in given]
        self.most = e.halving_max(e.intr("maxnum", *self.x))
        negated = [b.fsub(const(VECTOR, -0.0), x) for x in self.x]
        self.least = b.fsub(const(F32, -0.0), e.halving_max(e.intr("maxnum", *negated)))

    @property
    def largest(self) -> Value:
        """The value of largest magnitude; of two, the negative one."""
        b = self.e.b
        positive = b.fcmp_ordered(">", self.most, b.fsub(const(F32, -0.0), self.least))
        return b.select(positive, self.most, self.least)

    def dot(self, codes: Sequence[Value]) -> Value:
        """Sum of values times codes."""
        return _total(self.e, [self.e.b.fmul(x, q) for x, q in zip(self.x, codes, strict=True)])


def _divided(e: Emitter, a: Value, c: Value) -> Value:
    """a / c; 0 where c is 0."""
    return e.b.select(e.b.fcmp_ordered(">", c, const(F32, 0.0)), e.b.fdiv(a, c), const(F32, 0.0))


def _symmetric(e: Emitter, kind: KVType, g: _Group) -> tuple[list[Value], Value]:
    """(codes i32, scale) of types without a minimum."""
    b = e.b
    table = kind.name == "iq4_nl"
    levels = -CODEBOOK[0] if table else 16 if ".high" in kind.has else 8
    d = b.fdiv(g.largest, const(F32, float(-levels)))
    inverse = _inverse(e, d)
    scaled = [b.fmul(x, inverse) for x in g.x]
    if table:
        found = [_nearest(e, y) for y in scaled]
        codes, q = [index for index, _ in found], [value for _, value in found]
    else:
        q = [_rounded(e, y, -levels, levels - 1) for y in scaled]
        codes = [b.add(b.fptosi(y, _INTS), const(_INTS, kind.middle)) for y in q]
    d = _divided(e, g.dot(q), _total(e, [b.fmul(y, y) for y in q]))
    return codes, d


def _nearest(e: Emitter, y: Value) -> tuple[Value, Value]:
    """(index, value as f32) of the nearest value of the codebook; half way: the lower."""
    b = e.b
    index, value = const(_INTS, 0), const(VECTOR, float(CODEBOOK[0]))
    for i in range(1, 16):
        above = b.fcmp_ordered(">", y, const(VECTOR, (CODEBOOK[i - 1] + CODEBOOK[i]) / 2))
        index = b.select(above, const(_INTS, i), index)
        value = b.select(above, const(VECTOR, float(CODEBOOK[i])), value)
    return index, value


def _with_minimum(e: Emitter, kind: KVType, g: _Group) -> tuple[list[Value], Value, Value]:
    """(codes i32, scale, minimum) of types with a minimum."""
    b = e.b
    top = 31.0 if ".high" in kind.has else 15.0
    n = const(F32, float(GROUP))
    low, d = g.least, b.fdiv(b.fsub(g.most, g.least), const(F32, top))
    total = _total(e, g.x)
    inverse, offset = _inverse(e, d), e.splat(low, 16)
    q = [_rounded(e, b.fmul(b.fsub(x, offset), inverse), 0.0, top) for x in g.x]
    sum_q, sum_qq = _total(e, q), _total(e, [b.fmul(y, y) for y in q])
    above = b.fsub(b.fmul(n, g.dot(q)), b.fmul(total, sum_q))
    d = _divided(e, above, b.fsub(b.fmul(n, sum_qq), b.fmul(sum_q, sum_q)))
    d = _rounded_half(e, d)[1]
    low = b.fdiv(b.fsub(total, b.fmul(d, sum_q)), n)
    return [b.fptosi(y, _INTS) for y in q], d, low


def _store_codes(e: Emitter, kind: KVType, codes: Sequence[Value], words: Value, high: Value | None) -> None:
    """Pack vectors of 16 codes, i32, to `words` and the fifth bits to `high`, if the type has them."""
    b = e.b

    def folded(x: Value) -> Value:
        """Each half's lanes combined by or, in all of its lanes."""
        for distance in (4, 2, 1):
            x = b.or_(x, e.shuffle(x, [i ^ distance for i in range(16)]))
        return x

    for k, x in enumerate(codes):
        low = folded(b.shl(b.and_(x, const(_INTS, 15)), const(_INTS, SHIFTS * 2)))
        for half in (0, 1):
            e.store(e.lane(low, 8 * half), words, 8 * k + 4 * half)
        if high is not None:
            bits = b.and_(b.lshr(x, const(_INTS, 4)), const(_INTS, 1))
            bits = folded(b.shl(bits, const(_INTS, list(range(8)) * 2)))
            for half in (0, 1):
                e.store(b.trunc(e.lane(bits, 8 * half), I8), high, 2 * k + half)


def _encode_group(kind: KVType) -> Callable[..., None]:
    def body(e: Emitter, source: Value, target: Value, first: Value, d_pad: Value) -> None:
        b = e.b
        g = _Group(e, source, first)
        low = None
        if ".min" in kind.has:
            codes, scale, low = _with_minimum(e, kind, g)
        else:
            codes, scale = _symmetric(e, kind, g)
        places = [
            b.add(target, b.add(offset, element_offset(e, plane, first)))
            for plane, offset in zip(kind.planes, plane_offsets(e, kind, d_pad), strict=True)
        ]
        high = places[1] if ".high" in kind.has else None
        _store_codes(e, kind, codes[:1], places[0], high)
        with b.if_then(b.icmp_signed("<", b.add(first, const(I64, 16)), d_pad)):
            later = [b.add(places[0], const(I64, 8)), high and b.add(high, const(I64, 2))]
            _store_codes(e, kind, codes[1:], *later)
        numbers = [b.select(g.finite, _rounded_half(e, scale)[0], const(I16, 0x7E00))]
        numbers += [_rounded_half(e, low)[0]] if low is not None else []
        for bits, place in zip(numbers, places[-len(numbers) :], strict=True):
            e.store(bits, place)

    return body


def make_encode_row(kind: KVType) -> Any:
    @emit("i64,i64,i64->void")
    def encode(e, source, target, d_pad):
        """Encode f32 [d_pad], followed by zeros up to a whole group, as a row of V at `target`."""
        b = e.b

        def plain(d: Value, _: list[Value]) -> None:
            x = e.load(VECTOR, source, b.shl(d, const(I64, 2)))
            stored = {"f32": lambda: x, "f16": lambda: _to_half(e, x), "bf16": lambda: e.to_bf16(x)}[kind.name]()
            e.store(stored, target, b.mul(d, const(I64, kind.codes.size)))

        def group(first: Value, _: list[Value]) -> None:
            stop = e.intr("smin", d_pad, b.add(first, const(I64, GROUP)))

            def largest(d: Value, carried: list[Value]) -> list[Value]:
                x = e.load(VECTOR, source, b.shl(d, const(I64, 2)))
                # 0 times infinity or NaN is NaN
                return [e.intr("maxnum", carried[0], e.intr("fabs", x)), e.fma(x, const(VECTOR, 0.0), carried[1])]

            most, check = e.loop(stop, largest, [const(VECTOR, 0.0)] * 2, start=first, step=16)
            scale = b.fdiv(e.halving_max(most), const(F32, 127.0))
            bits, scale = _rounded_half(e, scale)
            inverse = _inverse(e, scale)

            def code(d: Value, _: list[Value]) -> None:
                x = _rounded(e, b.fmul(e.load(VECTOR, source, b.shl(d, const(I64, 2))), inverse), -127.0, 127.0)
                e.store(b.trunc(b.fptosi(x, _INTS), Vec(I8, 16)), target, d)

            e.loop(stop, code, start=first, step=16)
            finite = b.fcmp_ordered("==", e.halving_sum(check), const(F32, 0.0))
            place = b.add(target, b.add(d_pad, b.ashr(first, const(I64, 4))))
            e.store(b.select(finite, bits, const(I16, 0x7E00)), place)

        def packed(first: Value, _: list[Value]) -> None:
            e.function(f"encode_group_{kind.name}", _encode_group(kind), source, target, first, d_pad)

        if kind.packed:
            e.loop(d_pad, packed, step=GROUP)
        elif kind.quantized:
            e.loop(d_pad, group, step=GROUP)
        else:
            e.loop(d_pad, plain, step=16)

    return encode


def _spread(kind: KVType) -> Any:
    @emit("i64,i64,i64,i64->void")
    def spread(e, source, block, lane, d_pad):
        """Copy a row in the layout of V into a lane of a block of K."""
        b = e.b
        pairs = zip(kind.planes, plane_offsets(e, kind, d_pad), strict=True)
        for plane, offset in pairs:
            ty = {4: I32, 2: I16, 1: I8}[plane.size]
            size = const(I64, plane.size)
            target = b.add(block, b.add(b.mul(offset, const(I64, K_LANES)), b.mul(lane, size)))
            at = b.add(source, offset)

            def element(
                i: Value, _: object, ty: Any = ty, size: Value = size, at: Value = at, to: Value = target
            ) -> None:
                place = b.mul(i, size)
                e.store(e.load(ty, at, place), to, b.mul(place, const(I64, K_LANES)))

            e.loop(count_of(e, plane, d_pad), element)

    return spread


def make_store_value(kind: KVType) -> Any:
    encode = make_encode_row(kind).body

    @emit("i64,i64,i64,i64,i64,i64->void")
    def store_value(e, source, scratch, block, lane, d_pad, row):
        """Encode f32 [d_pad] as position `lane` of a block of V. scratch: of `row` bytes, a row's."""
        b = e.b
        if not kind.quantized:
            encode(e, source, b.add(block, b.mul(lane, row)), d_pad)
            return
        encode(e, source, scratch, d_pad)
        code_row = b.mul(b.lshr(d_pad, const(I64, 3)), const(I64, kind.eighth))
        target = b.add(block, b.mul(lane, code_row))

        def code(i: Value, _: list[Value]) -> None:
            e.store(e.load(I16, scratch, i), target, i)

        e.loop(code_row, code, step=2)

        def scale(i: Value, _: list[Value]) -> None:
            place = b.add(b.mul(i, const(I64, K_LANES)), b.shl(lane, const(I64, 1)))
            to = b.add(b.add(block, b.mul(code_row, const(I64, K_LANES))), place)
            e.store(e.load(I16, b.add(scratch, code_row), i), to)

        e.loop(b.sub(row, code_row), scale, step=2)

    return store_value


encode_row, spread_row, store_value = make_encode_row(F32_KV), _spread(F32_KV), make_store_value(F32_KV)
EIGHTH, SCALES, V_EIGHTH, V_SCALES = F32_KV.eighth, F32_KV.group, F32_KV.eighth, F32_KV.group


@kernel
def kv_store(
    a, tid, nth, *, ctl: Address, pos: Address, slot: Address, k: Address, ldk: Int, v: Address, ldv: Int,
    keys: Address, values: Address, table: Address, table_stride: Int, n_kv: Int, d_head: Int, d_value: Int,
    k_block: Int = 0, v_block: Int = 0, scratch: Address, scratch_bytes: Int,
):  # fmt: skip
    """Write the keys and values of the batch into the cache. One kernel per pair of types: see `kv_store_kernel`.

    ctl, pos, slot       batch control
    k, v                 f32 [tok][head_kv][d_head] and [tok][head_kv][d_value], d_value <= d_head; keys after rope
    keys, values         the caches, on 16-byte boundaries; values 0: only keys are written, v is not read
    table, table_stride  i64 [sequence][page]; bytes from row to row
    k_block, v_block     blocks of the Walsh-Hadamard transform of keys and of values; 0: none
    scratch              scratch_bytes for each thread: see `store_scratch_bytes`

    Reference: tests/reference/attention.py, the same bits.
    """
    d_pad, v_pad = (d_head + 15) // 16 * 16, (d_value + 15) // 16 * 16
    row, vrow = row_size(d_head, EIGHTH, SCALES), row_size(d_value, V_EIGHTH, V_SCALES)
    padded = scratch + tid * scratch_bytes
    encoded = padded + (d_head + 31) // 32 * 128
    total = ldi(ctl) * n_kv
    for j in range(total * tid // nth, total * (tid + 1) // nth):
        t = j // n_kv
        h = j - t * n_kv
        p, s = ldi(pos + 8 * t), ldi(slot + 8 * t)
        page = ldi(table + s * table_stride + p // PAGE * 8)
        p = p % PAGE
        pad_row(k + t * ldk + h * d_head * 4, padded, d_head)
        if k_block:
            transform_row(padded, d_head, k_block)
        encode_row(padded, encoded, d_pad)
        spread_row(encoded, keys + ((page * n_kv + h) * PAGE + p // 16 * 16) * row, p % 16, d_pad)
        if values:
            pad_row(v + t * ldv + h * d_value * 4, padded, d_value)
            if v_block:
                transform_row(padded, d_value, v_block)
            block = values + ((page * n_kv + h) * PAGE + p // 16 * 16) * vrow
            store_value(padded, encoded, block, p % 16, v_pad, vrow)


@cache
def kv_store_kernel(keys: KVType, values: KVType) -> Kernel:
    """`kv_store` for these types."""
    name = keys.name if keys is values else f"{keys.name}_{values.name}"
    return variant(
        kv_store,
        f"kv_store_{name}",
        encode_row=make_encode_row(keys),
        spread_row=_spread(keys),
        store_value=make_store_value(values),
        EIGHTH=keys.eighth,
        SCALES=keys.group,
        V_EIGHTH=values.eighth,
        V_SCALES=values.group,
    )
