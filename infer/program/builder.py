"""Programs: what a family's layers ask for, turned into an array of op records over one arena.

A layer calls `Builder.op` (or the shorter `norm`, `matmul`...) in the order of execution. Buffers are named by the
values that flow between ops; the builder sees who uses what when, gives buffers whose lives do not overlap the same
memory, and writes the records. Nothing is allocated while a program runs.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from ..kernels import execute
from ..kernels.build.jit import Kernel
from ..kernels.emit.isa import ISA, host
from ..kernels.execute import RECORD
from ..kernels.products.inputs import InputSums, square_sums
from ..kernels.rows import elementwise
from ..kernels.rows.layer_norm import layer_norm
from .operands import ALIGN, Batch, Buffer, Columns, Counter, Op, Ref, Rows, Weight, Work, round_up
from .products import FEW_COLUMNS, GEMV_COLUMNS, Products

__all__ = [
    "FEW_COLUMNS",
    "GEMV_COLUMNS",
    "Batch",
    "Buffer",
    "Builder",
    "Columns",
    "Counter",
    "Op",
    "Program",
    "Ref",
    "Rows",
    "Weight",
    "Work",
    "aligned_empty",
    "round_up",
]


class Builder:
    """Collects the ops of one program for up to `capacity` columns on `n_threads` threads."""

    def __init__(self, capacity: int, n_threads: int, *, exact: bool, batch: Batch, isa: ISA | None = None) -> None:
        self.capacity, self.n_threads, self.exact, self.batch = capacity, n_threads, exact, batch
        self.isa = isa or host()
        self.ops: list[Op] = []
        self.buffers: list[Buffer] = []
        self.scratch = Buffer(0)
        self.products = Products(self)
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
        y = self.products.product(x, w, name, columns)
        for a, b in w.lora:
            thin = self.products.product(x, a, "lora_a", columns)
            added = self.products.product(thin, b, "lora_b", replace(columns, index=0))
            self.op(elementwise.add_groups, columns.groups, y, y.ld, added, added.ld, y.n, 1.0, name="lora_add")
        return y

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
