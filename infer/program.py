"""Programs: what a family's layers ask for, turned into an array of op records over one arena.

A layer calls `Builder.op` (or the shorter `norm`, `matmul`...) in the order of execution. Buffers are named by the
values that flow between ops; the builder sees who uses what when, gives buffers whose lives do not overlap the same
memory, and writes the records. Nothing is allocated while a program runs.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ..quant.ggml.types import GGMLType
from .kernels import elementwise, execute, gemm, gemv, gemv_columns, pack
from .kernels.execute import RECORD
from .kernels.inputs import InputSums, square_sums
from .kernels.isa import ISA, host
from .kernels.jit import Kernel
from .kernels.layer_norm import layer_norm
from .kernels.weights import INT_BLOCKS

ALIGN = 64
GEMV_COLUMNS = 3  # up to this many columns, weight rows are multiplied one column at a time
FEW_COLUMNS = 8  # up to this many, rows go straight to all columns; with more they are unpacked for register tiles
SCRATCH_TARGET = 192 << 10  # bytes of unpacked weight rows that a thread works on: fits the second-level cache


def round_up(n: int, multiple: int) -> int:
    return (n + multiple - 1) // multiple * multiple


@dataclass(eq=False)
class Buffer:
    """Memory in the arena, alive from the first to the last op that names it."""

    nbytes: int
    first: int = -1
    last: int = -1
    offset: int = -1


@dataclass(frozen=True)
class Rows:
    """f32 rows: `n` values, `ld` bytes apart, `offset` bytes into a buffer or at a fixed address."""

    base: "Buffer | int"
    n: int
    ld: int
    offset: int = 0

    def columns(self, first: int, n: int) -> "Rows":
        """A part of every row."""
        assert first + n <= self.ld // 4
        return Rows(self.base, n, self.ld, self.offset + 4 * first)

    @property
    def ref(self) -> "Ref":
        return Ref(self.base, self.offset)


@dataclass(frozen=True)
class Ref:
    """An address in an op record: `offset` bytes into a buffer or after a fixed address."""

    base: "Buffer | int"
    offset: int = 0


@dataclass(frozen=True)
class Weight:
    """A matrix (or a stack of them, one per expert) as it lies in memory: `rows` rows of `n` values of type `kind`."""

    name: str
    kind: GGMLType
    rows: int
    n: int
    address: int
    stride: int
    n_expert: int = 1
    keep: object = field(default=None, compare=False, repr=False)  # owner of the memory
    lora: tuple[tuple["Weight", "Weight"], ...] = ()  # pairs (A, B): B A is added to the matrix

    @property
    def expert_stride(self) -> int:
        return self.rows * self.stride

    @property
    def nbytes(self) -> int:
        return self.rows * self.stride

    def one(self, i: int) -> "Weight":
        """Matrix i of a stack."""
        lora = tuple((a.one(i), b.one(i)) for a, b in self.lora)
        return replace(self, address=self.address + i * self.expert_stride, n_expert=1, lora=lora)


@dataclass(frozen=True)
class Batch:
    """Addresses of the control block that the engine fills before each run."""

    n_tok: int
    n_seg: int
    n_out: int
    ctl: int  # the three counts together
    tokens: int
    pos: int
    slot: int
    seg: int
    out_index: int
    targets: int
    all_tokens: int  # groups record of all tokens (see kernels/gemv.py)
    all_outputs: int
    last: int = 0  # i64 per token: the position of the last one that it sees


# bytes and operations of an op in a run, given tokens before it and tokens in it of every segment
Work = Callable[[Sequence[tuple[int, int]]], tuple[int, int]]


@dataclass
class Op:
    """A record, and what the op is said to do: bytes, and operations per column; per group of columns and column of
    these where there are `groups` (an expert's weights are read when it has columns); or `work`, which goes first."""

    name: str
    kernel: Kernel
    fields: list["int | Ref | Counter"]
    nbytes: int = 0
    flops: int = 0
    groups: "Ref | None" = None
    work: Work | None = None


@dataclass(frozen=True)
class Columns:
    """The columns of a product: which groups of them, where a column's source row is, and how many at most."""

    groups: "int | Ref"
    capacity: int  # columns, gaps included
    index: "int | Ref" = 0


class Counter:
    """Stands for the address of a zeroed i64 of its own."""


class Builder:
    """Collects the ops of one program for up to `capacity` columns on `n_threads` threads."""

    def __init__(self, capacity: int, n_threads: int, *, exact: bool, batch: Batch, isa: ISA | None = None) -> None:
        self.capacity, self.n_threads, self.exact, self.batch = capacity, n_threads, exact, batch
        self.isa = isa or host()
        self.ops: list[Op] = []
        self.buffers: list[Buffer] = []
        narrow, wide = gemm.tiles(self.isa)
        self.tile = narrow if capacity <= narrow.cols else wide
        self.use_gemv = capacity <= FEW_COLUMNS
        self.scratch = Buffer(0)
        self._packed: dict[tuple, tuple[Buffer, int]] = {}
        self.named: dict[str, Rows] = {}  # what layers leave to later ones
        self.inputs: InputSums | None = None  # where the squares of what weights are multiplied by are added
        self.tokens = Columns(batch.all_tokens, capacity)
        self.outputs = Columns(batch.all_outputs, capacity)

    # --- memory ---
    def buffer(self, nbytes: int) -> Buffer:
        made = Buffer(round_up(max(nbytes, 1), ALIGN))
        self.buffers.append(made)
        return made

    def rows(self, n: int, capacity: int | None = None) -> Rows:
        """New rows, padded to a multiple of 16 values."""
        ld = round_up(n, 16) * 4
        return Rows(self.buffer(ld * (capacity or self.capacity)), n, ld)

    def need_scratch(self, per_thread: int) -> int:
        """Ask for bytes that belong to one thread during an op; returns the stride between threads when laid out."""
        per_thread = round_up(per_thread, ALIGN)
        self.scratch.nbytes = max(self.scratch.nbytes, per_thread * self.n_threads)
        return per_thread

    # --- ops ---
    def op(self, kernel: Kernel, *fields: "int | float | Ref | Rows | Counter", name: str = "", **said):
        """Append an op. Rows become their address; floats are passed as f32 bits. `said`: fields of `Op`."""
        index = len(self.ops)
        record: list[int | Ref | Counter] = []
        for value in fields:
            if isinstance(value, Rows):
                value = value.ref
            if isinstance(value, float):
                value = int(np.float32(value).view(np.uint32))
            if isinstance(value, Ref) and isinstance(value.base, int):
                value = value.base + value.offset
            if isinstance(value, Ref):
                assert isinstance(value.base, Buffer)
                value.base.first = index if value.base.first < 0 else value.base.first
                value.base.last = index
            record.append(value if isinstance(value, Ref | Counter) else int(value))
        assert len(record) < RECORD, kernel
        self.ops.append(Op(name or kernel.name, kernel, record, **said))

    def norm(
        self, x: Rows, weight: int, eps: float, residual: Rows | None = None, *, scale: float = 1.0, name: str = "norm",
        bias: int = 0, outputs: bool = False,
    ) -> Rows:  # fmt: skip
        """x += scale * residual, then RMS norm; `weight` is an address or 0. With a `bias`, layer norm.

        outputs: only of those rows that logits are wanted of.
        """
        out = self.rows(x.n)
        r = (residual, residual.ld) if residual else (0, 0)
        count, index = (self.batch.n_out, self.batch.out_index) if outputs else (self.batch.n_tok, 0)
        kernel, more = (layer_norm, (bias,)) if bias else (elementwise.rms_norm, ())
        self.op(kernel, count, x, x.ld, *r, weight, out, out.ld, x.n, float(eps), index, float(scale), *more, name=name)
        return out

    def matmul(self, x: Rows, w: Weight, name: str, columns: Columns | None = None) -> Rows:
        """y = W x for every column, and B (A x) of every adapter added to it, one after the other."""
        columns = columns or self.tokens
        if self.inputs is not None:
            sums = self.inputs.addresses(w.name, w.n_expert, x.n)
            self.op(square_sums, columns.groups, x, x.ld, columns.index, x.n, *sums, name="inputs")
        y = self._product(x, w, name, columns)
        for a, b in w.lora:
            thin = self._product(x, a, "lora_a", columns)
            added = self._product(thin, b, "lora_b", Columns(columns.groups, columns.capacity))
            self.op(elementwise.add_groups, columns.groups, y, y.ld, added, added.ld, y.n, 1.0, name="lora_add")
        return y

    def _product(self, x: Rows, w: Weight, name: str, columns: Columns) -> Rows:
        """y = W x. Packs x in the form the product needs, once per form."""
        integer = not self.exact and w.kind in INT_BLOCKS
        assert x.n <= w.n < x.n + 32, (name, x.n, w.n)
        pairs = self._in_pairs(w)
        K = w.n // 2 if pairs else w.n
        packed, stride = self._pack_pairs(x, w, columns) if pairs else self._pack(x, w, integer, columns)
        y = self.rows(w.rows, columns.capacity)
        groups = columns.groups if isinstance(columns.groups, Ref) else None
        said = {"nbytes": w.nbytes, "flops": 2 * w.rows * w.n, "groups": groups}
        head = (w.address, w.stride, packed, stride, y, y.ld, w.rows, K, Counter(), columns.groups, w.expert_stride)
        if self.use_gemv:
            self.op(self._gemv(w.kind, integer, pairs), *head, name=name, **said)
            return y
        rows = self._chunk_rows(w, integer)
        per_thread = self.need_scratch(gemm.scratch_bytes(w.kind, self.tile, K, rows, integer=integer, isa=self.isa))
        kernel = gemm_kernel(w.kind, self.tile, integer, self.isa, pairs)
        self.op(kernel, *head, Ref(self.scratch), per_thread, rows, name=name, **said)
        return y

    def _gemv(self, kind: GGMLType, integer: bool, pairs: bool) -> Kernel:
        if self.capacity <= GEMV_COLUMNS:
            table = gemv.INT_GEMV if integer else gemv.FLOAT_GEMV
            return gemv.pairs_gemv(self.isa) if pairs else table[kind]
        table = gemv_columns.INT_COLUMNS if integer else gemv_columns.FLOAT_COLUMNS
        return gemv_columns.pairs_columns(self.isa) if pairs else table[kind]

    def _in_pairs(self, w: Weight) -> bool:
        """Whether a product multiplies pairs of BF16."""
        return self.isa.bf16 and not self.exact and w.kind is GGMLType.BF16 and w.n % 32 == 0

    def _pack_pairs(self, x: Rows, w: Weight, columns: Columns) -> tuple[Ref, int]:
        """Columns of BF16, and for tiles these again, moved about like columns of half as many f32."""
        K, width = w.n // 2, 1 if self.use_gemv else self.tile.cols
        key = (x, "pairs", columns)
        if key not in self._packed:
            stride = round_up(K * 4, ALIGN)
            buffer = self.buffer(stride * columns.capacity)
            self.op(
                pack.pack_pairs_columns, x, x.ld, Ref(buffer), stride, x.n, w.n, columns.groups, columns.index,
                name="pack",
            )  # fmt: skip
            if not self.use_gemv:
                source, ld, stride = Ref(buffer), stride, round_up(K * 4 * width, ALIGN)
                buffer = self.buffer(stride * ((columns.capacity + width - 1) // width))
                self.op(
                    pack.pack_float_tiles, source, ld, Ref(buffer), stride, K, K, columns.groups, 0, Counter(), width,
                    name="pack",
                )  # fmt: skip
            self._packed[key] = (buffer, stride)
        buffer, stride = self._packed[key]
        return Ref(buffer), stride

    def _chunk_rows(self, w: Weight, integer: bool) -> int:
        """Rows that a thread unpacks at a time: what fits, but enough chunks for all threads."""
        item = gemm.scheme(w.kind, self.isa).code_bytes if integer else 2 if self._in_pairs(w) else 4
        row_bytes = w.n * item
        fitting = max(1, SCRATCH_TARGET // row_bytes // gemm.ROWS)
        sharing = max(1, w.rows // (4 * self.n_threads) // gemm.ROWS)
        return gemm.ROWS * min(fitting, sharing, 4)

    def _pack(self, x: Rows, w: Weight, integer: bool, columns: Columns) -> tuple[Ref, int]:
        if integer:
            few = "column" if self.capacity <= GEMV_COLUMNS else "columns"
            form = few if self.use_gemv else gemm.scheme(w.kind, self.isa).packing
        else:
            form = "float"
            # rows that already are as the product wants them
            if self.use_gemv and x.n == w.n and not columns.index:
                return x.ref, x.ld
        key = (x, form, columns)
        if key in self._packed:
            buffer, stride = self._packed[key]
            return Ref(buffer), stride
        width = 1 if self.use_gemv else self.tile.cols
        if integer:
            per_block = 40 if self.use_gemv else (gemm.scheme(w.kind, self.isa).steps + pack.LINES) * 4 * width
            stride = w.n // 32 * per_block
        else:
            stride = w.n * 4 * width
        stride = round_up(stride, ALIGN)
        kernel = {
            "float": pack.pack_float_columns if self.use_gemv else pack.pack_float_tiles,
            **pack.PACK_COLUMNS,
            **pack.PACK_TILES,
        }[form]
        buffer = self.buffer(stride * ((columns.capacity + width - 1) // width))
        self.op(
            kernel, x, x.ld, Ref(buffer), stride, x.n, w.n, columns.groups, columns.index, Counter(), width,
            name="pack",
        )  # fmt: skip
        self._packed[key] = (buffer, stride)
        return Ref(buffer), stride

    def swiglu(self, gate: Rows, up: Rows, count: "int | Ref | None" = None, capacity: int | None = None) -> Rows:
        """silu(gate) * up, in place of `gate`."""
        count = self.batch.n_tok if count is None else count
        self.op(elementwise.swiglu, count, gate, gate.ld, up, up.ld, gate, gate.ld, gate.n)
        return Rows(gate.base, gate.n, gate.ld, gate.offset)

    # --- result ---
    def keep_groups(self) -> None:
        """Let the groups of columns be read after a run: see `Program.work_of`."""
        for groups in dict.fromkeys(op.groups for op in self.ops if op.groups is not None):
            self.op(execute.nothing, groups)

    def build(self) -> "Program":
        return Program(self)


_GEMMS: dict[tuple, Kernel] = {}


def gemm_kernel(kind: GGMLType, tile: gemm.Tile, integer: bool, isa: ISA, pairs: bool = False) -> Kernel:
    key = (kind, tile, integer, isa, pairs)
    if key not in _GEMMS:
        made = gemm.make_pairs_gemm(tile, isa) if pairs else gemm.make_gemm(kind, tile, integer=integer, isa=isa)
        _GEMMS[key] = made
    return _GEMMS[key]


def _place(buffers: Sequence[Buffer]) -> int:
    """Give every buffer an offset such that buffers alive at the same time do not overlap; returns the total size."""
    placed: list[Buffer] = []
    total = 0
    for item in sorted(buffers, key=lambda b: -b.nbytes):
        if item.first < 0:
            continue
        busy = sorted((p.offset, p.offset + p.nbytes) for p in placed if p.first <= item.last and item.first <= p.last)
        offset = 0
        for begin, end in busy:
            if offset + item.nbytes <= begin:
                break
            offset = max(offset, end)
        item.offset = offset
        placed.append(item)
        total = max(total, offset + item.nbytes)
    return total


def aligned_empty(nbytes: int) -> np.ndarray:
    """u8 array on a 64-byte boundary, not initialized (and not resident until touched)."""
    raw = np.empty(nbytes + ALIGN, np.uint8)
    skip = -raw.ctypes.data % ALIGN
    return raw[skip : skip + nbytes]


class Program:
    """The records of a built program, its arena and its counters."""

    def __init__(self, builder: Builder) -> None:
        self.ops = builder.ops
        self.capacity = builder.capacity
        every = range(len(self.ops))
        builder.scratch.first, builder.scratch.last = 0, len(self.ops) - 1
        size = _place([*builder.buffers, builder.scratch] if builder.scratch.nbytes else builder.buffers)
        self.arena = aligned_empty(size)
        counters = sum(isinstance(f, Counter) for op in self.ops for f in op.fields)
        self.counters = aligned_empty(64 * max(1, counters)).view(np.int64)
        self.records = aligned_empty(len(self.ops) * RECORD * 8).view(np.int64).reshape(-1, RECORD)
        self.records[:] = 0
        base = self.arena.ctypes.data
        counter = self.counters.ctypes.data
        for i in every:
            for j, value in enumerate(self.ops[i].fields):
                if isinstance(value, Counter):
                    self.records[i, j + 1] = counter
                    counter += 64
                elif isinstance(value, Ref):
                    assert isinstance(value.base, Buffer)
                    self.records[i, j + 1] = base + value.base.offset + value.offset
                else:
                    self.records[i, j + 1] = value

    @property
    def kernels(self) -> list[Kernel]:
        return [op.kernel for op in self.ops]

    def link(self) -> None:
        """Put the addresses of the (compiled) kernels into the records."""
        for i, op in enumerate(self.ops):
            self.records[i, 0] = op.kernel.address

    def work_of(self, op: Op, n: int, segments: Sequence[tuple[int, int]]) -> tuple[int, int]:
        """Bytes and operations of an op in the last run, of n columns; segments as in `Work`.

        Where there are groups, the program must have been built to keep them.
        """
        if op.work is not None:
            return op.work(segments)
        if op.groups is None:
            return op.nbytes, op.flops * n
        assert isinstance(op.groups.base, Buffer)
        start = op.groups.base.offset + op.groups.offset
        words = self.arena[start : start + op.groups.base.nbytes // 8 * 8].view(np.int64)
        used = int(words[0])
        return op.nbytes * used, op.flops * int(words[3 : 1 + 3 * used : 3].sum())

    def address_of(self, rows: Rows) -> int:
        """Where rows of this program lie."""
        if isinstance(rows.base, Buffer):
            return int(self.arena.ctypes.data + rows.base.offset + rows.offset)
        return rows.base + rows.offset

    def view(self, rows: Rows, count: int) -> np.ndarray:
        """The first `count` rows as f32 [count, n] (a view: valid until the next run)."""
        assert isinstance(rows.base, Buffer)
        start = rows.base.offset + rows.offset
        block = self.arena[start : start + count * rows.ld].view(np.float32)
        return block.reshape(count, rows.ld // 4)[:, : rows.n]


Build = Callable[[Builder], None]
