"""Products of weights and activations in a program: chooses the kernel, and packs columns as it needs them.

ONE    gemv.py           a column at a time: generation
FEW    gemv_columns.py   a few columns, each at its own cost: batches, speculation, experts with some tokens
MANY   gemm.py           register tiles: prompts
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from hybrid.quant.ggml.types import GGMLType

from ..kernels.build.jit import Kernel
from ..kernels.emit.isa import ISA
from ..kernels.products import gemm, gemv, gemv_columns, pack
from ..kernels.rows import hadamard
from ..kernels.weights import INT_BLOCKS
from .operands import ALIGN, Buffer, Columns, Ref, RowRotation, Rows, Weight, round_up
from .record import OpFields, Recorder

GEMV_COLUMNS = 3  # up to this many columns are multiplied one at a time
FEW_COLUMNS = 8  # up to this many, weight rows are used as stored; for more they are unpacked for register tiles
# The same for the average of groups of columns, where FEW multiplies sixteen groups of weights at a time (Zen 5)
FEW_ON_AVERAGE = 20
# Bytes of unpacked weight rows that a thread works on, by the lanes of a vector: they fit the second-level cache, which
# has 1 MB or more with AVX-512.
SCRATCH_TARGET = {8: 192 << 10, 16: 640 << 10}
# Bytes of columns that are multiplied with all rows before the next columns, by the lanes of a vector: they stay in the
# last-level cache, which virtual machines share. Not measured with 16 lanes, where unpacking costs a larger share.
COLUMNS_TARGET = {8: 4 << 20, 16: 8 << 20}


IN_WORDS = (GGMLType.F16, GGMLType.BF16)  # weights that may be multiplied in words (see gemm_schemes.py)


class Way(Enum):
    """How columns are multiplied: see the head of this file."""

    ONE = "one"
    FEW = "few"
    MANY = "many"


@dataclass(frozen=True)
class Packed:
    """Packed columns. stride: bytes from one column (or tile of columns) to the next."""

    buffer: Buffer
    stride: int


_Packing = tuple[Rows, str, Columns] | tuple[Rows, str, Columns, int]  # which rows, the form, and the width of tiles


class Products:
    """Adds the ops of products to a program. Packs rows once for all products that need the same form."""

    words: bool = False  # F16 and BF16 weights times many columns are multiplied in words, unless `exact`

    def __init__(self, recorder: Recorder, isa: ISA, *, exact: bool) -> None:
        self.recorder, self.isa, self.exact = recorder, isa, exact
        narrow, wide = gemm.tiles(self.isa)
        self.tile = narrow if recorder.capacity <= narrow.cols else wide
        self._packed: dict[_Packing, Packed] = {}
        self._rotated: dict[tuple[Rows, RowRotation, object], Rows] = {}

    def way(self, few: bool) -> Way:
        """How columns are multiplied. few: each group is expected to be small."""
        if self.recorder.capacity <= GEMV_COLUMNS:
            return Way.ONE
        return Way.FEW if few or self.recorder.capacity <= FEW_COLUMNS else Way.MANY

    def are_few(self, n_columns: int, n_groups: int, weights: Iterable[Weight]) -> bool:
        """Whether `n_columns` in `n_groups`, such as experts, are few columns per group for these weights."""
        wide = not self.exact and all(gemv_columns.is_wide(w.kind, self.isa) for w in weights)
        return n_columns <= (FEW_ON_AVERAGE if wide else FEW_COLUMNS) * n_groups

    def width(self, few: bool) -> int:
        """Groups of columns begin at multiples of this."""
        return self.tile.cols if self.way(few) is Way.MANY else 1

    def product(self, x: Rows, w: Weight, name: str, columns: Columns, out: Rows | None = None) -> Rows:
        """y = W x for every column. out: where y is written; None: new rows."""
        recorder, way = self.recorder, self.way(columns.few)
        assert x.n <= w.n < x.n + 32, (name, x.n, w.n)
        assert w.rotation is None or any(
            x == y and w.rotation == rotation for (_, rotation, _), y in self._rotated.items()
        ), name
        how = self._scheme(w, way)
        integer = how is not None
        # BF16 weights are multiplied in pairs
        bf16_pairs = self.isa.bf16 and not (self.exact or how) and w.kind is GGMLType.BF16 and w.n % 32 == 0
        K = w.n // 2 if bf16_pairs else w.n
        if bf16_pairs:
            packed, stride = self._pack_pairs(x, w, columns)
        else:
            packed, stride = self._pack(x, w, how, columns)
        y = recorder.rows(w.rows, columns.capacity) if out is None else out
        assert y.n == w.rows, (name, y.n, w.rows)
        more: OpFields = {}
        if way is Way.MANY:
            rows = self._chunk_rows(w, how.code_bytes if how else 2 if bf16_pairs else 4)
            nbytes = gemm.scratch_bytes(how, self.tile, K, rows)
            kernel = gemm_kernel(w.kind, self.tile, how, self.isa, bf16_pairs)
            scratch_bytes = recorder.need_scratch(nbytes)
            more = {"scratch": Ref(recorder.scratch), "scratch_bytes": scratch_bytes, "rows": rows}
            more["n_passes"], more["columns"] = self._passes(columns.capacity, stride)
        else:
            kernel = row_kernel(way, w.kind, integer, self.isa, bf16_pairs)
        recorder.op(
            kernel, name=name, nbytes=w.nbytes, flops=2 * w.rows * w.n, w=w.address, stride=w.stride, x=packed,
            x_stride=stride, y=y, N=w.rows, K=K, groups=columns.groups, expert_stride=w.expert_stride, **more,
        )  # fmt: skip
        return y

    def _scheme(self, w: Weight, way: Way) -> gemm.Scheme | None:
        """How integers stand for the weights and columns; None: the product is of floats."""
        if self.exact:
            return None
        if w.kind in INT_BLOCKS:
            return gemm.scheme(w.kind, self.isa)
        in_words = self.words and way is Way.MANY and w.kind in IN_WORDS and gemm.has_words(self.isa)
        return gemm.WORDS if in_words else None

    def _chunk_rows(self, w: Weight, item: int) -> int:
        """Rows that a thread unpacks at a time, `item` bytes per weight: fit the cache, with chunks for all threads."""
        lanes = self.isa.lanes
        # if rows are too long to fit: with AVX-512, few rows at a time would read the columns again too often
        fitting = SCRATCH_TARGET[lanes] // (w.n * item) // gemm.ROWS or (4 if lanes == 16 else 1)
        sharing = max(1, w.rows // (4 * self.recorder.n_threads) // gemm.ROWS)
        return gemm.ROWS * min(fitting, sharing, 4)

    def _passes(self, n_columns: int, stride: int) -> tuple[int, int]:
        """How often all rows are read, and the number of columns multiplied each time. stride: bytes of a tile."""
        n_tiles = -(-n_columns // self.tile.cols)
        n_passes = min(n_tiles, -(-n_tiles * stride // COLUMNS_TARGET[self.isa.lanes]))
        each = -(-n_tiles // n_passes)
        return -(-n_tiles // each), each * self.tile.cols

    # --- columns ---
    def forget(self, x: Rows) -> None:
        """Forget packed columns of x's buffer, because its values change from here on."""
        self._packed = {key: packed for key, packed in self._packed.items() if key[0].base != x.base}
        self._rotated = {key: rows for key, rows in self._rotated.items() if key[0].base != x.base}

    def rotated(self, x: Rows, rotation: RowRotation, columns: Columns) -> Rows:
        """The rows of x as inputs of rotated weights, made once for all weights with this rotation."""
        if (key := (x, rotation, columns.groups)) not in self._rotated:
            recorder = self.recorder
            out = self._rotated[key] = recorder.rows(x.n, columns.capacity)
            recorder.op(
                hadamard.rotate, name="rotate", groups=columns.groups, x=x, out=out, n=x.n, block=rotation.block,
                scale=hadamard.normalization(rotation.block), signs=rotation.signs, places=rotation.places or None,
            )  # fmt: skip
        return self._rotated[key]

    def _pack(self, x: Rows, w: Weight, how: gemm.Scheme | None, columns: Columns) -> tuple[Ref, int]:
        way, width = self.way(columns.few), self.width(columns.few)
        # the product can read these rows unpacked
        if how is None and way is not Way.MANY and x.n == w.n and not columns.index:
            return x.ref, x.ld
        if how is not None and way is Way.MANY:
            form, kernel = how.packing, pack.PACK_TILES[how.packing]
            nbytes = -(-w.n // how.weights) * how.unit_bytes * width
        elif how is not None:
            form = (gemv if way is Way.ONE else gemv_columns).form(w.kind, self.isa)
            nbytes = w.n // 32 * 40 if way is Way.ONE else gemv_columns.column_bytes(w.kind, self.isa, w.n)
            kernel = pack.PACK_COLUMNS[form]
        else:
            form, nbytes = "float", w.n * 4 * width
            kernel = pack.pack_float_tiles if way is Way.MANY else pack.pack_float_columns
        return self._once((x, form, columns), kernel, x, x.n, w.n, nbytes, columns, columns.index, width)

    def _pack_pairs(self, x: Rows, w: Weight, columns: Columns) -> tuple[Ref, int]:
        """Pack columns as BF16; for tiles pack these again, as if they were columns of half as many f32."""
        key, K = (x, "pairs", columns), w.n // 2
        packed, stride = self._once(key, pack.pack_pairs_columns, x, x.n, w.n, K * 4, columns, columns.index, 1)
        if self.way(columns.few) is not Way.MANY:
            return packed, stride
        assert not isinstance(packed.base, int)
        source, width = Rows(packed.base, K, stride), self.tile.cols
        return self._once((*key, width), pack.pack_float_tiles, source, K, K, K * 4 * width, columns, 0, width)

    def _once(
        self,
        key: _Packing,
        kernel: Kernel,
        x: Rows,
        n: int,
        K: int,
        nbytes: int,
        columns: Columns,
        index: int | Ref,
        width: int,
    ) -> tuple[Ref, int]:
        """Pack x by `kernel`, unless `key` was packed already. nbytes: of a column, or of a tile."""
        if key not in self._packed:
            stride = round_up(nbytes, ALIGN)
            buffer = self.recorder.buffer(stride * ((columns.capacity + width - 1) // width))
            self.recorder.op(
                kernel, name="pack", x=x, out=Ref(buffer), stride=stride, n=n, K=K, groups=columns.groups, index=index,
                cols=width,
            )  # fmt: skip
            self._packed[key] = Packed(buffer, stride)
        return Ref(self._packed[key].buffer), self._packed[key].stride


def row_kernel(way: Way, kind: GGMLType, integer: bool, isa: ISA, bf16_pairs: bool) -> Kernel:
    """The kernel for Way.ONE or Way.FEW."""
    if bf16_pairs:
        return gemv.pairs_gemv(isa) if way is Way.ONE else gemv_columns.pairs_columns(isa)
    if way is Way.ONE:
        return (gemv.INT_GEMV if integer else gemv.FLOAT_GEMV)[kind]
    return (gemv_columns.INT_COLUMNS if integer else gemv_columns.FLOAT_COLUMNS)[kind]


_GEMMS: dict[tuple[GGMLType, gemm.Tile, gemm.Scheme | None, ISA, bool], Kernel] = {}


def gemm_kernel(kind: GGMLType, tile: gemm.Tile, how: gemm.Scheme | None, isa: ISA, bf16_pairs: bool = False) -> Kernel:
    """The kernel for a weight type and tile, made once per process. bf16_pairs: BF16 weights with vdpbf16ps."""
    key = (kind, tile, how, isa, bf16_pairs)
    if key not in _GEMMS:
        _GEMMS[key] = gemm.make_pairs_gemm(tile, isa) if bf16_pairs else gemm.make_gemm(kind, tile, how, isa)
    return _GEMMS[key]
