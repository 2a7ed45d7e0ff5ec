"""The method of the 8-bit products with many columns on each target, and the shape of their register tiles.

Stored codes c stand for weights c - base:
    vnni   u8 codes (signed codes plus 128) x s8, vpdpbusd
    ub     u8 codes x s8, vpmaddubsw summed in 16 bits over a block, or half of one (AVX2, codes of up to 6 bits). The
           sums start from -base * x, so the final sums fit; others may wrap
    sdot   s8 codes without their bias x s8, NEON's sdot
    smmla  the same codes, interleaved by eights: of two rows, and of two columns (NEON with i8mm)
    s16    s16 codes x s16, vpmaddwd: AVX2's vpmaddubsw saturates with 8-bit codes, and this is as fast (AVX2, Q8_0);
           the codes are already multiplied with the integer factors of 16 weights (`sub`)
    words  s16 x s16, vpmaddwd or vpdpwssd: floats as codes of 13 bits, see WORDS
The other methods multiply the sums of half blocks with these factors: with one vpmaddwd for both halves if the sums fit
16 bits (vnni, codes of few bits), otherwise with two vpmulld.
"""

from dataclasses import dataclass

from hybrid.quant.ggml.types import GGMLType

from ..emit.isa import ISA
from ..weights import INT_BLOCKS
from .pack_codes import LINES
from .pack_words import WORD_BLOCK

UNROLL = 2  # steps per iteration of the innermost loop
QUAD = 4  # NEON: steps whose weights of a row are loaded at once, into one register that sdot multiplies by lane
OCTET = 8  # codes of a row or column that smmla multiplies, two steps


@dataclass(frozen=True)
class Scheme:
    """The method of an integer product.

    steps       dwords of a block
    code_bytes  bytes of a stored code
    add         stored code minus the type's code
    base        subtracted from stored codes: the sums start from -base * x
    restore     part of `base` that is not in the codes (it only keeps the sums in 16 bits): restore * x is added back
    factors     dwords of factors for the sums of half blocks: 2 i32; 1 with two i16 if these sums fit 16 bits; or 0
    words       4-byte numbers per block after the codes: scale, factors, minima
    weights     of a block
    """

    name: str
    steps: int
    code_bytes: int
    add: int
    base: int
    restore: int
    factors: int
    words: int
    weights: int = 32

    @property
    def halves(self) -> bool:
        """Whether sums of half blocks are multiplied with factors."""
        return self.factors > 0

    @property
    def rows_together(self) -> int:
        """Rows whose records are interleaved by eight bytes: eight codes, or a number twice."""
        return 2 if self.name == "smmla" else 1

    @property
    def record(self) -> int:
        """Bytes of an unpacked block: codes and numbers."""
        return self.weights * self.code_bytes + 4 * self.words * self.rows_together

    @property
    def unroll(self) -> int:
        """Steps per iteration."""
        return QUAD if self.name == "sdot" else UNROLL

    @property
    def packing(self) -> str:
        """The form of the columns: a key of pack.PACK_TILES."""
        return {"s16": "s16", "vnni": "dots", "words": "words", "smmla": "octets"}.get(self.name, "s8")

    @property
    def unit_bytes(self) -> int:
        """Bytes of a block of a packed column."""
        return 4 * (self.steps + (1 if self.name == "words" else LINES))

    @property
    def n_min(self) -> int:
        """Minima per block."""
        return self.words - 1 - self.factors


# w = d * q with d = max |w| / MOST_WORD of a block, and the same for columns (pack_words.py)
WORDS = Scheme("words", WORD_BLOCK // 2, 2, 0, 0, 0, 0, 1, WORD_BLOCK)


def has_words(isa: ISA) -> bool:
    """Whether WORDS are faster than f32."""
    return isa.dot == "avx2" or isa.dot.startswith("vnni")


def scheme(kind: GGMLType, isa: ISA) -> Scheme:
    """The method for a type on a target."""
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
        return new_scheme("smmla" if isa.i8mm else "sdot", 8, 1, -bias, 0, 0, factors)
    # a 16-bit lane sums 16 products of a block, or 8 of half a block: 16 * 16 * 127 and 8 * 32 * 127 fit
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
        """Number of columns."""
        return self.vectors * self.lanes

    @property
    def in_registers(self) -> bool:
        """Whether the sums of a chain and of a block both fit the 32 registers of 16 lanes."""
        return self.lanes == 16 and self.rows * self.vectors <= 12


def tiles(isa: ISA) -> tuple[Tile, Tile]:
    """(narrow, wide): for ubatches of at most `narrow.cols` columns, and for larger ones."""
    if isa.lanes == 16:
        return Tile(12, 1, 16), Tile(6, 2, 16)
    # NEON: 32 registers of half the lanes; each row's weights take one (see QUAD), or each two rows' (smmla)
    tile = Tile(4, 2, 8) if isa.dot.startswith("neon") and not isa.i8mm else Tile(6, 2, 8)
    return tile, tile


def word_tile_of(tile: Tile) -> Tile:
    """The tile of words for columns packed for `tile`: it can have more rows, since it has no sums of chains."""
    return Tile(12, 2, 16) if tile == Tile(6, 2, 16) else tile


def float_tile_of(tile: Tile, isa: ISA) -> Tile:
    """The float tile for columns packed for `tile`: it can have more rows, since it has no sums of blocks; on NEON
    each row's weights take a register."""
    if isa.i8mm:
        return Tile(4, 2, 8)
    return Tile(8, 2, 16) if tile == Tile(6, 2, 16) else tile
