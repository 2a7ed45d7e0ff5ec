"""The cache of keys and values: its types, its layout, and the kernel that stores into it.

    ctl   i64 [3]         number of tokens, of segments, of outputs
    pos   i64 [tok]       index of the token in its sequence, called its position here
    slot  i64 [tok]       its sequence: a row of the table
    table i64 [slot][page]  the page in K and V that holds positions PAGE * page .. of a sequence; rows are
                            `table_stride` bytes
    K     [page][head_kv][PAGE / 16] blocks of 16 positions:  values [d_pad][16], then scales f16 [group][16]
    V     [page][head_kv][PAGE] rows:                         values [v_pad], then scales f16 [group]

Sequences with a common prefix share its pages. K has positions in the lanes, so that a score needs no sum over lanes.
d_pad is d_head, the width of a head's keys, rounded up to a multiple of 16; v_pad is d_value rounded up. With latent
attention the last d_value values of a key are its values: there is no V. The types:

    f32   as computed
    f16   rounded to nearest even. Finite values beyond 65504 become +-65504: an infinity would make every later token
          NaN, and a key so large decides the softmax alone anyway. Infinity and NaN are stored unchanged.
    q8_0  groups of 32 values of a head (the last may be shorter): scale = max |x| / 127 in f16, codes rint(x / scale)
          in i8. A group with an infinity or NaN has the scale NaN.

A value read back is the f16 widened, or code * scale, both exact in f32, so all kernels read the same numbers.

Perplexity of the bundled model (BF16, 444 chunks of 256 tokens of its held-out text): f32 9.72039, f16 9.72037, q8_0
9.72044, with a standard error of 0.10. So f16 is the default; f32 is for exact results.
"""

from dataclasses import dataclass
from typing import Any

from ..build.jit import Kernel, device, kernel, variant
from ..emit.emitter import F32, I8, I16, I32, I64, Emitter, Value, Vec, const, emit, ldi
from ..emit.fields import Address, Int

K_LANES = 16  # positions side by side in K
PAGE = 64  # positions of a page, a multiple of the block that attention reads at once
GROUP = 32  # values that share a scale

VECTOR = Vec(F32, 16)


@dataclass(frozen=True)
class KVType:
    """Type of a cache: bytes of a value (`item`), and of the scale of GROUP values (`scale`; 0: no scale)."""

    name: str
    item: int
    scale: int = 0

    def row_bytes(self, d_head: int) -> int:
        """Bytes of one head at one position, in K; with d_value as `d_head`, in V."""
        return self.item * padded_head(d_head) + self.scale * n_groups(d_head)


F32_KV, F16_KV, Q8_0_KV = KVType("f32", 4), KVType("f16", 2), KVType("q8_0", 1, 2)
KV_TYPES = {kind.name: kind for kind in (F32_KV, F16_KV, Q8_0_KV)}


def pages_of(n: int) -> int:
    """Pages that hold n positions."""
    return -(-n // PAGE)


def rows_of_page(every: int) -> int:
    """Rows of a page in a store with one row per `every` tokens; the row of a group whose last token is `token` is
    token % PAGE // every."""
    return -(-PAGE // every)


def padded_head(d_head: int) -> int:
    """d_head rounded up to a multiple of 16: the values of a head in memory."""
    return -(-d_head // 16) * 16


def n_groups(d_head: int) -> int:
    """Number of scales of a head."""
    return -(-d_head // GROUP)


def store_scratch_bytes(d_head: int) -> int:
    """Scratch of `kv_store` for one thread: a row as f32, and as stored."""
    return 4 * padded_head(d_head) + F32_KV.row_bytes(d_head)


# --- reading ----------------------------------------------------------------------------------------------------------
def load16(e: Emitter, kind: KVType, pointer: Value, offset: Value | int = 0) -> Value:
    """16 neighbouring values as f32, without their scales."""
    if kind is F32_KV:
        return e.load(VECTOR, pointer, offset)
    if kind is F16_KV:
        return e.half(e.load(Vec(I16, 16), pointer, offset))
    return e.to_f32(e.b.sext(e.load(Vec(I8, 16), pointer, offset), Vec(I32, 16)))


def rounded_up(e: Emitter, d_head: Value) -> Value:
    """`padded_head` in a kernel."""
    return e.b.and_(e.b.add(d_head, const(I64, 15)), const(I64, -16))


# --- writing ----------------------------------------------------------------------------------------------------------
@emit("i64,i64,i64->void")
def pad_row(e, source, target, n):
    """target f32 [n rounded up to 16] = source f32 [n], then zeros."""
    b = e.b
    whole = b.and_(n, const(I64, -16))

    def copy(ty: Any) -> Any:
        def body(d: Value, _: list[Value]) -> None:
            place = b.shl(d, const(I64, 2))
            e.store(e.load(ty, source, place), target, place)

        return body

    with b.if_then(b.icmp_signed("<", whole, n)):
        e.store(const(VECTOR, 0.0), target, b.shl(whole, const(I64, 2)))
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


def make_encode_row(kind: KVType) -> Any:
    @emit("i64,i64,i64->void")
    def encode(e, source, target, d_pad):
        """Encode f32 [d_pad] as a row of V at `target`."""
        b = e.b

        def plain(d: Value, _: list[Value]) -> None:
            x = e.load(VECTOR, source, b.shl(d, const(I64, 2)))
            e.store(_to_half(e, x) if kind is F16_KV else x, target, b.mul(d, const(I64, kind.item)))

        def group(first: Value, _: list[Value]) -> None:
            stop = e.intr("smin", d_pad, b.add(first, const(I64, GROUP)))

            def largest(d: Value, carried: list[Value]) -> list[Value]:
                x = e.load(VECTOR, source, b.shl(d, const(I64, 2)))
                # 0 times infinity or NaN is NaN
                return [e.intr("maxnum", carried[0], e.intr("fabs", x)), e.fma(x, const(VECTOR, 0.0), carried[1])]

            most, check = e.loop(stop, largest, [const(VECTOR, 0.0)] * 2, start=first, step=16)
            scale = b.fdiv(e.halving_max(most), const(F32, 127.0))
            half = _to_half(e, e.splat(scale, 8))
            scale = e.lane(e.half(half), 0)
            usable = b.fcmp_ordered(">", scale, const(F32, 0.0))
            inverse = b.select(usable, b.fdiv(const(F32, 1.0), scale), const(F32, 0.0))
            inverse = e.splat(inverse, 16)

            def code(d: Value, _: list[Value]) -> None:
                x = e.intr("rint", b.fmul(e.load(VECTOR, source, b.shl(d, const(I64, 2))), inverse))
                # maxnum and minnum turn NaN into a number
                x = e.intr("minnum", e.intr("maxnum", x, const(VECTOR, -127.0)), const(VECTOR, 127.0))
                e.store(b.trunc(b.fptosi(x, Vec(I32, 16)), Vec(I8, 16)), target, d)

            e.loop(stop, code, start=first, step=16)
            finite = b.fcmp_ordered("==", e.halving_sum(check), const(F32, 0.0))
            bits = b.select(finite, e.lane(half, 0), const(I16, 0x7E00))
            place = b.add(target, b.add(d_pad, b.ashr(first, const(I64, 4))))
            e.store(bits, place)

        if kind.scale:
            e.loop(d_pad, group, step=GROUP)
        else:
            e.loop(d_pad, plain, step=16)

    return encode


def _spread(kind: KVType) -> Any:
    @emit("i64,i64,i64,i64->void")
    def spread(e, source, target, d_pad, d_head):
        """Copy a row in the layout of V into one lane of a block of K; `target`: address of the lane's first value."""
        b = e.b

        def place(ty: Any, size: int, source: Value, target: Value) -> Any:
            def body(i: Value, _: list[Value]) -> None:
                e.store(e.load(ty, source, b.mul(i, const(I64, size))), target, b.mul(i, const(I64, K_LANES * size)))

            return body

        e.loop(d_head, place({4: I32, 2: I16, 1: I8}[kind.item], kind.item, source, target))
        if kind.scale:
            # the scales' lanes are two bytes wide, the codes' one
            lane = b.and_(target, const(I64, K_LANES - 1))
            scales = b.add(b.add(target, lane), b.shl(d_pad, const(I64, 4)))
            groups = b.ashr(b.add(d_head, const(I64, GROUP - 1)), const(I64, 5))
            e.loop(groups, place(I16, 2, b.add(source, d_pad), scales))

    return spread


@device
def row_size(n, item, scale):
    """`KVType.row_bytes(n)`, for kernels."""
    return (n + 15) // 16 * 16 * item + (n + 31) // 32 * scale


encode_row, spread_row, ITEM, SCALE = make_encode_row(F32_KV), _spread(F32_KV), F32_KV.item, F32_KV.scale


@kernel
def kv_store(
    a, tid, nth, *, ctl: Address, pos: Address, slot: Address, k: Address, ldk: Int, v: Address, ldv: Int,
    keys: Address, values: Address, table: Address, table_stride: Int, n_kv: Int, d_head: Int, d_value: Int,
    scratch: Address, scratch_bytes: Int,
):  # fmt: skip
    """Write the keys and values of the batch into the cache. One kernel per type: see KV_STORE.

    ctl, pos, slot       batch control
    k, v                 f32 [tok][head_kv][d_head] and [tok][head_kv][d_value], d_value <= d_head; keys after rope
    keys, values         the caches, on 16-byte boundaries; values 0: only keys are written, v is not read
    table, table_stride  i64 [sequence][page]; bytes from row to row
    scratch              scratch_bytes for each thread: see `store_scratch_bytes`

    Reference: tests/reference/attention.py, the same bits.
    """
    d_pad, v_pad = (d_head + 15) // 16 * 16, (d_value + 15) // 16 * 16
    row, vrow = row_size(d_head, ITEM, SCALE), row_size(d_value, ITEM, SCALE)
    padded = scratch + tid * scratch_bytes
    encoded = padded + 4 * d_pad
    total = ldi(ctl) * n_kv
    for j in range(total * tid // nth, total * (tid + 1) // nth):
        t = j // n_kv
        h = j - t * n_kv
        p, s = ldi(pos + 8 * t), ldi(slot + 8 * t)
        page = ldi(table + s * table_stride + p // PAGE * 8)
        p = p % PAGE
        pad_row(k + t * ldk + h * d_head * 4, padded, d_head)
        encode_row(padded, encoded, d_pad)
        block = keys + ((page * n_kv + h) * PAGE + p // 16 * 16) * row
        spread_row(encoded, block + p % 16 * ITEM, d_pad, d_head)
        if values:
            pad_row(v + t * ldv + h * d_value * 4, padded, d_value)
            encode_row(padded, values + ((page * n_kv + h) * PAGE + p) * vrow, v_pad)


KV_STORE: dict[str, Kernel] = {
    kind.name: variant(
        kv_store,
        f"kv_store_{kind.name}",
        encode_row=make_encode_row(kind),
        spread_row=_spread(kind),
        ITEM=kind.item,
        SCALE=kind.scale,
    )
    for kind in KV_TYPES.values()
}
