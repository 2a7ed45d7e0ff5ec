"""The two descriptions of a weight type for the products: blocks of small integers with scales, or of floats.

A block of 32 to 256 weights consists of groups of 32 consecutive weights. In a group

    w[k] = scale * sub[k // 16] * (code[k] - bias) - min[k // 16]

with f32 `scale` and `min`, small integers `sub` and 8-bit `code`. Without `sub` the factor is 1, without `min` nothing
is subtracted; a single minimum of a group applies to both halves. Products with a scale are exact in f32 for nearly all
types, and rounded as in ggml's decoders for the rest, so `floats_of` gives the decoders' bits.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from llvmlite import ir

from ..emit.emitter import F32, I8, I16, I32, I64, Emitter, Value, Vec, const

V16I8, V32I8 = Vec(I8, 16), Vec(I8, 32)
V8F, V16F, V16I16 = Vec(F32, 8), Vec(F32, 16), Vec(I16, 16)


@dataclass
class Groups:
    """The groups of 32 of one block, unpacked.

    codes   <32 x i8> per group; absolute values if there are `signs` (`whole` applies them)
    scale   blocks of 256: <8 x f32>; smaller blocks: the stored bits, an i16, for all groups
    mins    `n_min` values; blocks of 256: each <8 x f32>; smaller blocks: each an i16 with the bits of an f16
    subs    <16 x i16>, two per group; None: the type has none
    signs   <32 x i8> per group, 1 or -1; None: the codes have their signs
    """

    codes: list[Value]
    scale: Value
    mins: list[Value]
    subs: Value | None = None
    signs: list[Value] | None = None


Unpack = Callable[[Emitter, Value], Groups]
Scale = Callable[[Emitter, Value], Value]


@dataclass(frozen=True)
class IntBlock:
    """A type whose weights are small integers.

    bias    subtracted from the codes, which are unsigned; 0: unsigned without a bias; None: codes are signed
    largest maximum of |code - bias|; with subs, |sub| * |code - bias| stays below 2^15
    subs    whether groups have two integer factors
    n_min   number of minima per group: 0, 1 or 2
    scale   turns the stored bits (i16, scalar or vector) into f32; not for blocks of 256
    """

    weights: int
    nbytes: int
    bias: int | None
    largest: int
    unpack: Unpack
    subs: bool = False
    n_min: int = 0
    scale: Scale = Emitter.half

    @property
    def groups(self) -> int:
        return self.weights // 32

    @property
    def signed(self) -> bool:
        return self.bias is None


@dataclass(frozen=True)
class FloatBlock:
    """`load` gives `weights` consecutive weights as vectors of 16 f32, two per group of 32, with the bits of ggml's
    decoders."""

    weights: int
    nbytes: int
    load: Callable[[Emitter, Value], list[Value]]


def lanes_of(e: Emitter, scalars: list[Value]) -> Value:
    v = ir.Constant(Vec(scalars[0].type, len(scalars)), ir.Undefined)
    for k, x in enumerate(scalars):
        v = e.b.insert_element(v, x, const(I32, k))
    return v


def signed(e: Emitter, values: Value, signs: Value) -> Value:
    """<32 x i8> `values`, negated where `signs` is negative; `signs` is nowhere 0."""
    if e.isa.x86 and e.isa.dot != "plain":
        return e.call("llvm.x86.avx2.psign.b", V32I8, values, signs)
    if e.isa.arch == "arm64":
        return e.b.mul(values, signs)
    return e.b.select(e.b.icmp_signed("<", signs, const(V32I8, 0)), e.b.neg(values), values)


def whole(e: Emitter, g: Groups) -> Groups:
    """The groups with `signs` applied to the codes."""
    if g.signs is None:
        return g
    codes = [signed(e, v, s) for v, s in zip(g.codes, g.signs, strict=True)]
    return Groups(codes, g.scale, g.mins, g.subs)


def eight_groups(e: Emitter, block: IntBlock, p: Value) -> Groups:
    """Unpack eight groups from p on; scales and mins as <8 x f32>."""
    if block.weights == 256:
        return block.unpack(e, p)
    n = block.groups
    parts = [block.unpack(e, e.at(p, k * block.nbytes)) for k in range(8 // n)]
    each = [k // n for k in range(8)]  # the block of each group
    scale = block.scale(e, e.shuffle(lanes_of(e, [g.scale for g in parts]), each))
    mins = [e.b.fneg(e.half(e.shuffle(lanes_of(e, [g.mins[i] for g in parts]), each))) for i in range(block.n_min)]
    return Groups([codes for g in parts for codes in g.codes], scale, mins)


def one_block(e: Emitter, block: IntBlock, p: Value) -> tuple[list[Value], Value, list[Value]]:
    """(codes of the groups, scale, mins) of a block of fewer than 256 weights; scale and mins in f32."""
    assert block.weights < 256
    g = block.unpack(e, p)
    return g.codes, block.scale(e, g.scale), [e.b.fneg(e.half(m)) for m in g.mins]


def halves(e: Emitter, block: IntBlock, codes: Value) -> tuple[Value, Value]:
    """code - bias as two <16 x i32>."""
    b = e.b
    values = []
    for first in (0, 16):
        part = e.part(codes, first, 16)
        if block.signed:
            values.append(b.sext(part, Vec(I32, 16)))
        else:
            wide = b.zext(part, Vec(I32, 16))
            values.append(b.sub(wide, const(Vec(I32, 16), block.bias)) if block.bias else wide)
    return values[0], values[1]


def floats_of(block: IntBlock) -> FloatBlock:
    """The type decoded to f32."""

    def load(e: Emitter, p: Value) -> list[Value]:
        b = e.b
        if block.weights < 256:
            groups, d, mins = one_block(e, block, p)
            each = [(codes, [d, d], mins * (2 // max(1, len(mins)))) for codes in groups]
        else:
            g = whole(e, block.unpack(e, p))
            each = []
            for k, codes in enumerate(g.codes):
                d = [e.lane(g.scale, k)] * 2
                if g.subs is not None:
                    d = [b.fmul(d[h], b.sitofp(e.lane(g.subs, 2 * k + h), F32)) for h in (0, 1)]
                m = [e.lane(v, k) for v in g.mins]
                each.append((codes, d, m * (2 // max(1, len(m)))))
        out = []
        for codes, d, m in each:
            for h, part in enumerate(halves(e, block, codes)):
                w = b.fmul(e.to_f32(part), e.splat(d[h], 16))
                out.append(b.fsub(w, e.splat(m[h], 16)) if m else w)
        return out

    return FloatBlock(block.weights, block.nbytes, load)


# --- shared by several types ---
def in_memory(e: Emitter, p: Value, vectors: Sequence[Value]) -> Value:
    """Store vectors of one type one after the other and return their address: cheaper than many lane extractions.

    LLVM would omit the stores if it knew the address, so the top bits of p, which are 0, are added to it.
    """
    ty = vectors[0].type
    nbytes = ty.count * ty.element.width // 8
    slot = e.stack(ty, len(vectors))
    for k, v in enumerate(vectors):
        e.store(v, slot, k * nbytes, nbytes)
    return e.at(slot, e.b.lshr(e.b.ptrtoint(p, I64), const(I64, 57)))


def nibbles(e: Emitter, packed: Value) -> tuple[Value, Value]:
    """(low, high) four bits of every byte, u8."""
    return e.b.and_(packed, const(packed.type, 15)), e.b.lshr(packed, const(packed.type, 4))


def nibble_codes(e: Emitter, p: Value, offset: int) -> Value:
    """32 codes of four bits from 16 bytes: the low halves of all bytes, then the high halves."""
    b, ty = e.b, Vec(I32, 8)
    twice = e.shuffle(e.load(Vec(I32, 4), p, offset), [0, 1, 2, 3] * 2)
    shifted = b.lshr(twice, const(ty, [0] * 4 + [4] * 4))
    return b.bitcast(b.and_(shifted, const(ty, 0x0F0F0F0F)), V32I8)


def _is_set(e: Emitter, bits: Value) -> Value:
    """The bits of an i32 as <32 x i1>."""
    if e.isa.arch != "arm64":
        return e.b.bitcast(bits, Vec(ir.IntType(1), 32))
    # on arm64 LLVM would extract the bits one by one
    spread = e.shuffle(e.b.bitcast(bits, Vec(I8, 4)), [k // 8 for k in range(32)])
    return e.b.icmp_unsigned("!=", e.b.and_(spread, const(V32I8, [1 << k % 8 for k in range(32)])), const(V32I8, 0))


def bit_select(e: Emitter, bits: Value, value: int) -> Value:
    """<32 x i8>: `value` where the bit of the i32 is set, else 0."""
    return e.b.select(_is_set(e, bits), const(V32I8, value), const(V32I8, 0))


def signs_of(e: Emitter, bits: Value) -> Value:
    """<32 x i8>: -1 where the bit of the i32 is set, else 1."""
    return e.b.select(_is_set(e, bits), const(V32I8, -1), const(V32I8, 1))
