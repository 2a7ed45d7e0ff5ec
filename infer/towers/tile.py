"""The program for one size of tiles: its inputs, the control block of its ops, and its outputs."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy as np

from ..kernels.attention.kv import CACHE_TYPES, pages_of
from ..kernels.rows import elementwise
from ..kernels.rows.mean_rows import mean_rows
from ..memory import HybridMemory
from ..program.builder import Batch, Builder, Columns, Program, Rows, aligned_empty, round_up
from .clamps import ClampingBuilder, Clamps


class Tile:
    """Builds the program for tiles of rows x columns patches.

    patches  the rows of patches that the program reads, f32 [n, n_values]
    memory   has the table of pages of the keys and values, which layers keep only within a pass
    """

    def __init__(
        self, rows: int, columns: int, n_values: int, n_threads: int, *, exact: bool, clamps: Mapping[str, Clamps]
    ) -> None:
        self.rows, self.columns, self.n = rows, columns, rows * columns
        self._kept: list[np.ndarray] = []
        self._memories: list[HybridMemory] = []  # whose tables the program reads
        n = self.n
        self.batch = self._batch(n, np.zeros(n, np.int64), np.arange(n), np.full(n, n - 1))
        self.b: Builder = ClampingBuilder(n, n_threads, exact=exact, batch=self.batch, clamps=clamps)
        self.memory = self.texts([n])
        self.patches = self.constant_rows(np.zeros((n, n_values), np.float32))
        self.values = self._kept[-1]
        self.outputs: list[Rows] = []
        self.program: Program | None = None

    # --- constants ---
    def constant(self, values: np.ndarray) -> int:
        """Address of a copy that lives as long as the program."""
        copy = aligned_empty(values.nbytes).view(values.dtype).reshape(values.shape)
        copy[...] = values
        self._kept.append(copy)
        return int(copy.ctypes.data)

    def constant_rows(self, values: np.ndarray) -> Rows:
        """Rows with these values, f32 [n, width]."""
        n, width = values.shape
        padded = aligned_empty(n * round_up(width, 16) * 4).view(np.float32).reshape(n, -1)
        padded[...] = 0
        padded[:, :width] = values
        self._kept.append(padded[:, :width])
        return Rows(int(padded.ctypes.data), width, padded.strides[0])

    def named(self, name: str, values: np.ndarray) -> None:
        """Leave values to layers by name, f32 [n, ...], without gaps between them."""
        self.b.named[name] = Rows(self.constant(values), values[0].size, values[0].nbytes)

    def texts(self, lengths: list[int]) -> HybridMemory:
        """A memory whose table has the pages of texts of these lengths."""
        memory = HybridMemory([], len(lengths), max(lengths), CACHE_TYPES["f32"])
        first = 0
        for i, length in enumerate(lengths):
            pages = pages_of(length)
            memory.attention.table[i, :pages] = np.arange(first, first + pages)
            first += pages
        self._memories.append(memory)
        return memory

    # --- batches ---
    def _batch(self, n: int, slot: np.ndarray, pos: np.ndarray, last: np.ndarray) -> Batch:
        ctl = self.constant(np.array([n, 1, 0, 0], np.int64))
        groups = self.constant(np.array([1, 0, 0, n], np.int64))
        at = {name: self.constant(values.astype(np.int64)) for name, values in
              (("slot", slot), ("pos", pos), ("last", last), ("rope_pos", np.arange(n)))}  # fmt: skip
        unused = dict.fromkeys(("n_seg", "n_out", "seg", "out_index", "targets", "all_outputs", "tokens"), 0)
        return Batch(n_tok=ctl, ctl=ctl, all_tokens=groups, pictures=None, **at, **unused)

    def windows(self, lengths: list[int], seen: list[int] | None = None) -> Batch:
        """The batch in which runs of rows of these lengths see only themselves, or as many rows of others as `seen`."""
        slots = np.repeat(np.arange(len(lengths)), lengths)
        starts = np.cumsum([0, *lengths[:-1]])
        pos = np.arange(sum(lengths)) - starts[slots]
        return self._batch(sum(lengths), slots, pos, np.asarray(seen or lengths)[slots] - 1)

    @contextmanager
    def within(self, batch: Batch) -> Iterator[None]:
        """Ops that are added within it belong to this batch."""
        b = self.b
        before = b.batch, b.tokens
        b.batch, b.tokens = batch, Columns(batch.all_tokens, b.capacity)
        try:
            yield
        finally:
            b.batch, b.tokens = before

    def counted(self, n: int) -> Batch:
        """The batch of n rows that are made of the patches."""
        return self._batch(n, np.zeros(n), np.arange(n), np.full(n, n - 1))

    # --- rows made of several ---
    def joined(self, x: Rows, n_row: int) -> Rows:
        """Rows that are n_row neighbours of x side by side. To be called within the batch of these rows."""
        out = self.b.rows(n_row * x.n)
        source = Rows(x.base, x.n, n_row * x.ld, x.offset)
        self.b.op(
            elementwise.take_parts, name="join", count=self.b.batch.n_tok, x=source, out=out, n_group=n_row, n=x.n,
            stride=x.ld,
        )  # fmt: skip
        return out

    def pooled(self, x: Rows, n_row: int, scale: float = 1.0) -> Rows:
        """Means of n_row neighbours of x, times `scale`. To be called within the batch of these rows."""
        out = self.b.rows(x.n)
        self.b.op(mean_rows, count=self.b.batch.n_tok, x=x, out=out, n=x.n, n_row=n_row, scale=float(scale / n_row))
        return out

    # --- the program ---
    @property
    def planned_bytes(self) -> int:
        """Bytes that the program would take, after all ops were added; nothing is reserved for it."""
        return self.b.nbytes(self.n) + sum(values.nbytes for values in self._kept)

    @property
    def nbytes(self) -> int:
        """Bytes of the program and its constants."""
        arena = 0 if self.program is None else int(self.program.arena.nbytes)
        return arena + sum(values.nbytes for values in self._kept)

    def build(self, outputs: list[Rows]) -> Program:
        """The program, which keeps its outputs."""
        self.outputs = outputs
        self.b.keep(*outputs)
        self.program = self.b.build()
        return self.program
