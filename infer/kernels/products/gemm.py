"""Products with many columns (prompts, batches): tokens in the SIMD lanes.

A thread takes a chunk of weight rows, unpacks them once into its scratch (gemm_unpack.py: integer codes and scales, or
f32), and multiplies them with all tiles of columns, in register tiles of R rows x C vectors of columns (gemm_tiles.py).
Weights are broadcast; only the activations are transposed, once per input (pack.py). The order of accumulation is as in
gemv.py.
"""

from hybrid.quant.ggml.types import GGMLType

from ..build.jit import Kernel, device, kernel, variant
from ..emit.emitter import F32, I64, Vec, const, emit, ldf, ldi, stf
from ..emit.fields import Address, Counter, Int
from ..emit.isa import ISA, host
from ..groups import n_groups
from .chunks import next_chunk
from .gemm_schemes import WORDS, Scheme, Tile, float_tile_of, has_words, scheme, tiles, word_tile_of
from .gemm_tiles import make_float_tile, make_int_tile, make_word_tile
from .gemm_unpack import make_float_unpack, make_int_unpack, make_word_unpack

__all__ = [
    "ROWS", "WORDS", "Scheme", "Tile", "gemm", "has_words", "make_gemm", "make_pairs_gemm", "scheme", "scratch_bytes",
    "tiles", "word_tile_of",
]  # fmt: skip

V8F = Vec(F32, 8)
SKEW = 8  # bytes between rows after whole cache lines, so that rows read in turn are in different cache banks
TILES = 2  # tiles of columns that use a chain of the rows while it is in the first-level cache
FLOAT_SPLIT = 128  # elements of a chain of floats that are multiplied at a time: 8 KB of the columns of a tile
AHEAD = 384 << 10  # bytes prefetched of the next chunk's weights; fits beside this chunk (see products.py)
ROWS = 24  # a chunk of rows is a multiple of this: of every tile's rows, and of the 8 of the output transposition


@emit("i64,i64,i64,i64->void")
def _store8(e, source, line, y, ldy):
    """Transpose 8 rows x 8 columns of the tile's output to 8 rows of y."""
    b = e.b
    vectors = [e.load(V8F, source, b.mul(line, const(I64, r))) for r in range(8)]
    for j, v in enumerate(e.transpose(vectors)):
        e.store(v, y, b.mul(ldy, const(I64, j)))


@device
def _store_tile(out, cols, y, ldy, n_rows, n_cols):
    """out f32 [row][cols] -> y[column][row], for n_rows and n_cols."""
    line = 4 * cols
    for c in range(0, n_cols, 8):
        for r in range(0, n_rows, 8):
            if r + 8 <= n_rows and c + 8 <= n_cols:
                _store8(out + r * line + 4 * c, line, y + c * ldy + 4 * r, ldy)
            else:
                for j in range(c, min(c + 8, n_cols)):
                    for i in range(r, min(r + 8, n_rows)):
                        stf(y + j * ldy + 4 * i, ldf(out + i * line + 4 * j))


@emit("i64,i64->void")
def _clear(e, out, n):
    """Set n floats, a multiple of 8, to zero."""
    e.loop(e.b.shl(n, const(I64, 2)), lambda o, _: e.store(const(V8F, 0.0), out, o, 32), step=32)


@emit("i64,i64,i64->void")
def _write_soon(e, y, ldy, n_cols):
    """Prefetch the cache line at y of every column for writing.

    The processor does not predict them, since columns are far apart, and a store would wait for its line.
    """
    if e.isa.lanes == 16:
        e.loop(n_cols, lambda c, _: e.prefetch(e.at(y, e.b.mul(c, ldy)), 0, write=True))


@emit("i64,i64->void")
def _read_soon(e, address, n_lines):
    """Prefetch cache lines into the second-level cache."""
    e.loop(n_lines, lambda k, _: e.prefetch(e.at(address, e.b.shl(k, const(I64, 6))), 0, 2))


def tile_piece(rows, stride, x, length, start, before, q, out):  # replaced in every variant
    raise NotImplementedError


def unpack_piece(source, out, chain_stride, K):
    raise NotImplementedError


COLS = TILE_ROWS = UNIT = RECORD = UNIT_BYTES = SPLIT = TOGETHER = 1
READ_AHEAD = 0


@device
def sixteen(n_units):
    """The number of chains of a row: unit i is number i // 16 of chain i % 16 (gemv.py)."""
    return 16


@device
def one_each(n_units):
    """The number of chains of a row of words: a chain is a unit."""
    return n_units


split = sixteen  # replaced in the variants for words


@device
def row_stride(n_units, n_chains, record):
    """Bytes from row to row of a chain: its units, rounded up to cache lines, plus SKEW."""
    return ((n_units + n_chains - 1) // n_chains * record + 63) // 64 * 64 + SKEW


@device
def _chunk(w, groups, expert_stride, stride, rows, n_chunks, n_passes, i):
    """Address of the rows of chunk i."""
    return w + ldi(groups + 8 + i // n_chunks // n_passes * 24) * expert_stride + i % n_chunks * rows * stride


@kernel
def gemm(  # noqa: C901  one loop nest
    a, tid, nth, *, w: Address, stride: Int, x: Address, x_stride: Int, y: Address, ldy: Int, N: Int, K: Int,
    counter: Counter, groups: Address, expert_stride: Int, scratch: Address, scratch_bytes: Int, rows: Int,
    n_passes: Int, columns: Int,
):  # fmt: skip
    """y = W x. Fields: gemv.py. Scratch: units [chains][rows][]; f32 out, q, chain [TILES][rows][cols]; zeros.

    TILES tiles of columns are multiplied with all rows of the chunk, chain by chain: a chain's data are adjacent and
    stay in the first-level cache, the chunk in the second. Chains are added as in `Emitter.chain_total`: a tile adds
    its chain to the sum of the previous ones (zeros for the first of a quarter) and stores it in q or, after the last
    of the quarter, adds it to `out`. Floats are multiplied SPLIT elements of a chain at a time, with partial sums in
    `chain`. Tiles never wait for memory, unpacking for nothing else: so during the tiles the weights that this thread
    will probably unpack next are prefetched into the second-level cache. All rows are multiplied with `columns` of a
    group, as many as stay in the last-level cache, before the next `columns`.
    """
    codes = scratch + tid * scratch_bytes
    n_units = (K + UNIT - 1) // UNIT
    n_split = split(n_units)
    per_chain, longer = n_units // n_split, n_units % n_split
    line = row_stride(n_units, n_split, RECORD)
    out = (codes + n_split * rows * line + 63) // 64 * 64
    plane = rows * COLS
    q, chain, zeros = out + 4 * TILES * plane, out + 8 * TILES * plane, out + 12 * TILES * plane
    _clear(zeros, TILE_ROWS * COLS)
    n_chains = min(n_split, n_units)
    n_chunks = (N + rows - 1) // rows
    total = ldi(groups) * n_passes * n_chunks
    near = nth // n_groups(nth)  # threads that share a counter: this thread's next chunk is probably i + near
    step = 0
    while True:
        i, step = next_chunk(counter, total, tid, nth, step)
        if i >= total:
            break
        group = groups + 8 + i // n_chunks // n_passes * 24
        r0, passed = i % n_chunks * rows, i // n_chunks % n_passes * columns
        n_rows = min(rows, N - r0)
        first, n_cols = ldi(group + 8) + passed, min(columns, ldi(group + 16) - passed)
        if n_cols <= 0:
            continue
        source = _chunk(w, groups, expert_stride, stride, rows, n_chunks, n_passes, i)
        for r in range(n_rows):
            of_row = codes + (r - r % TOGETHER) * line + r % TOGETHER * 8
            unpack_piece(source + r * stride, of_row, rows * line, K)
        soon = soon_end = lines = 0
        if READ_AHEAD and i + near < total:
            soon = _chunk(w, groups, expert_stride, stride, rows, n_chunks, n_passes, i + near)
            soon_end = soon + min(rows * stride, READ_AHEAD)
            calls = (n_rows + TILE_ROWS - 1) // TILE_ROWS * ((n_cols + COLS - 1) // COLS) * n_chains
            lines = (soon_end - soon) // 64 // max(1, calls) + 1
        for c in range(0, n_cols, COLS * TILES):
            n_tiles = min(TILES, (n_cols - c + COLS - 1) // COLS)
            tile = x + (first + c) // COLS * x_stride
            _clear(out, n_tiles * plane)
            for quarter in range(4):
                for k in range(quarter, n_chains, 4):
                    begin, length = k * per_chain + min(k, longer), per_chain + (1 if k < longer else 0)
                    first_of_four, last_of_four = k == quarter, k + 4 >= n_chains
                    written = quarter == 3 and last_of_four
                    for u in range(0, length, SPLIT):
                        n = min(SPLIT, length - u)
                        ends = u + n == length
                        for t in range(n_tiles):
                            part = tile + t * x_stride + (begin + u) * UNIT_BYTES
                            column = c + t * COLS
                            for r in range(0, n_rows, TILE_ROWS):
                                unpacked = codes + (k * rows + r) * line + u * RECORD
                                at = 4 * (t * plane + r * COLS)
                                start = chain + at if u else zeros
                                before = (zeros if first_of_four else q + at) if ends else 0
                                target = q + at if ends else chain + at
                                last = out + at if last_of_four else 0
                                tile_piece(unpacked, line, part, n, start, before, target, last)
                                if soon < soon_end:
                                    _read_soon(soon, lines)
                                    soon += 64 * lines
                                if written and ends:
                                    place = y + (first + column) * ldy + (r0 + r) * 4
                                    _write_soon(place, ldy, min(COLS, n_cols - column))
            for t in range(n_tiles):
                at = c + t * COLS
                columns_left = min(COLS, n_cols - at)
                _store_tile(out + 4 * t * plane, COLS, y + (first + at) * ldy + r0 * 4, ldy, n_rows, columns_left)


def scratch_bytes(how: Scheme | None, tile: Tile, K: int, rows: int) -> int:
    """Bytes of scratch for one thread (a multiple of 64). how: the scheme of an integer product; None: of floats."""
    n_units, record = (-(-K // how.weights), how.record) if how else (K, 4)
    n_chains = (one_each if how is WORDS else sixteen).function(n_units)
    size: int = (
        n_chains * rows * row_stride.function(n_units, n_chains, record)
        + 64
        + (3 * TILES * rows + ROWS) * tile.cols * 4
    )
    return (size + 4096 + 63) // 64 * 64


def _read_ahead(isa: ISA) -> int:
    return AHEAD if isa.lanes == 16 else 0


def make_gemm(kind: GGMLType, tile: Tile, how: Scheme | None, isa: ISA | None = None) -> Kernel:
    """The kernel for one weight type and one register tile. how: the scheme of an integer product; None: of floats."""
    isa = isa or host()
    way = "float" if how is None else "words" if how is WORDS else "int"
    name = f"gemm_{way}_{kind.name.lower()}_{tile.cols}{'' if isa is host() else isa.name}"
    if how is None:
        tile = float_tile_of(tile, isa)
        return variant(
            gemm,
            name,
            tile_piece=make_float_tile(tile, isa),
            unpack_piece=make_float_unpack(kind),
            COLS=tile.cols,
            TILE_ROWS=tile.rows,
            UNIT=1,
            UNIT_BYTES=4 * tile.cols,
            RECORD=4,
            SPLIT=FLOAT_SPLIT,
            READ_AHEAD=_read_ahead(isa),
        )
    in_words = how is WORDS
    tile = word_tile_of(tile) if in_words else tile
    return variant(
        gemm,
        name,
        tile_piece=make_word_tile(tile, isa) if in_words else make_int_tile(how, tile, isa),
        unpack_piece=make_word_unpack(kind, isa) if in_words else make_int_unpack(kind, how, isa),
        split=one_each if in_words else sixteen,
        COLS=tile.cols,
        TILE_ROWS=tile.rows,
        UNIT=how.weights,
        UNIT_BYTES=how.unit_bytes * tile.cols,
        RECORD=how.record,
        SPLIT=1 << 40,
        TOGETHER=how.rows_together,
        READ_AHEAD=_read_ahead(isa),
    )


def make_pairs_gemm(tile: Tile, isa: ISA) -> Kernel:
    """The kernel for BF16 weights times pairs of BF16; the field K counts pairs, which are unpacked as if f32."""
    tile = float_tile_of(tile, isa)
    return variant(
        gemm,
        f"gemm_pairs_{tile.cols}_{isa.name}",
        tile_piece=make_float_tile(tile, isa, bf16_pairs=True),
        unpack_piece=make_float_unpack(GGMLType.F32),
        COLS=tile.cols,
        TILE_ROWS=tile.rows,
        UNIT=1,
        UNIT_BYTES=4 * tile.cols,
        RECORD=4,
        SPLIT=FLOAT_SPLIT,
        READ_AHEAD=_read_ahead(isa),
    )
