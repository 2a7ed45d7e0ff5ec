"""How the 8-bit products with many columns are done on each target, and the shape of their register tiles.

Stored codes c stand for weights c - base:
    vnni   u8 codes (signed ones plus 128) x s8, vpdpbusd
    ub     u8 codes x s8, vpmaddubsw summed in 16 bits over a block, or half of one (AVX2, codes of up to 6 bits). The
           sums start from minus base * x, so the final value fits, and wrapping on the way does not matter
    sdot   s8 codes with the bias taken off x s8, NEON's sdot
    s16    s16 codes x s16, vpmaddwd: AVX2's vpmaddubsw saturates with 8-bit codes, and this is as fast (AVX2, Q8_0);
           the integer factors of 16 weights (`sub`) are in the codes
Elsewhere those factors multiply the sums of half a block; both at once, with one vpmaddwd instead of two vpmulld, where
these sums fit 16 bits (vnni, codes of a few bits).
"""

from dataclasses import dataclass

from hybrid.quant.ggml.types import GGMLType

from ..emit.isa import ISA
from ..weights import INT_BLOCKS

UNROLL = 2  # steps per iteration of the innermost loop
QUAD = 4  # NEON: steps whose weights of a row are loaded at once, into a register whose lanes are multiplied with


@dataclass(frozen=True)
class Scheme:
    """How an integer product is done.

    steps       dwords of a block of 32
    code_bytes  bytes of a stored code
    add         stored code minus the type's code
    base        what stored codes have too much; taken off by starting the sums from -base * x
    restore     part of `base` that they do not have too much (it only keeps the sums in 16 bits) and is given back
    factors     dwords with the type's factors, by which sums of half a block are multiplied: 2 i32, or 1 that holds two
                i16, when these sums fit 16 bits
    words       4-byte numbers per block after the codes: scale, factors, minima
    """

    name: str
    steps: int
    code_bytes: int
    add: int
    base: int
    restore: int
    factors: int
    words: int

    @property
    def halves(self) -> bool:
        """Whether sums of half a block are multiplied by factors."""
        return self.factors > 0

    @property
    def record(self) -> int:
        """Bytes of an unpacked block: codes and numbers."""
        return 32 * self.code_bytes + 4 * self.words

    @property
    def unroll(self) -> int:
        """Steps at a time."""
        return QUAD if self.name == "sdot" else UNROLL

    @property
    def packing(self) -> str:
        """The form of the columns: a key of pack.PACK_TILES."""
        return {"s16": "s16", "vnni": "dots"}.get(self.name, "s8")


def scheme(kind: GGMLType, isa: ISA) -> Scheme:
    """How a type is multiplied on a target."""
    block = INT_BLOCKS[kind]
    bias = block.bias or 0

    def new_scheme(name: str, steps: int, code_bytes: int, add: int, base: int, restore: int, factors: int) -> Scheme:
        return Scheme(name, steps, code_bytes, add, base, restore, factors, 1 + factors + block.n_min)

    factors = 2 if block.subs else 0
    if isa.dot.startswith("vnni"):
        add = 128 if block.signed else 0
        fits = 16 * block.largest * 127 < 1 << 15
        return new_scheme("vnni", 8, 1, add, bias + add, 0, 1 if factors and fits else factors)
    if isa.dot.startswith("neon"):
        return new_scheme("sdot", 8, 1, -bias, 0, 0, factors)
    # 16 sums of products of a block, or of half a block, in 16 bits: 16 * 16 * 127 and 8 * 32 * 127 fit
    limit = 32 if block.subs else 16
    if isa.dot == "avx2":
        if block.signed and block.largest <= 16:
            return new_scheme("ub", 8, 1, 16, 16, 0, factors)
        if not block.signed and block.largest <= limit:
            return new_scheme("ub", 8, 1, 0, bias, 0, factors)
        if not block.signed and block.largest < 2 * limit and not bias:
            return new_scheme("ub", 8, 1, 0, limit, limit, factors)
    return new_scheme("s16", 16, 2, -bias, 0, 0, 0)


@dataclass(frozen=True)
class Tile:
    """Register tile: `rows` rows x `vectors` vectors of `lanes` columns."""

    rows: int
    vectors: int
    lanes: int

    @property
    def cols(self) -> int:
        """Columns that a row is multiplied with at a time."""
        return self.vectors * self.lanes

    @property
    def in_registers(self) -> bool:
        """Whether the sums of a chain and of a block both fit into registers: there are 32 of 16 lanes."""
        return self.lanes == 16 and self.rows * self.vectors <= 12


def tiles(isa: ISA) -> tuple[Tile, Tile]:
    """(narrow, wide): for ubatches of at most `narrow.cols` columns, and for larger ones."""
    if isa.lanes == 16:
        return Tile(12, 1, 16), Tile(6, 2, 16)
    # NEON: 32 registers of half the lanes, of which each row takes one: see QUAD
    tile = Tile(4, 2, 8) if isa.dot.startswith("neon") else Tile(6, 2, 8)
    return tile, tile


def float_tile_of(tile: Tile) -> Tile:
    """The tile of floats for columns packed for `tile`: without sums of blocks beside its own it can have more rows."""
    return Tile(8, 2, 16) if tile == Tile(6, 2, 16) else tile
