"""A program, which is op records over one arena, and the recorder that collects them.

A record is RECORD int64: the kernel's address and its fields (kernels/emit/fields.py). The recorder notes the first and
last op that uses each buffer; buffers whose lives do not overlap can share memory.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..kernels.build.jit import Kernel
from ..kernels.emit.fields import RECORD
from ..kernels.groups import n_groups
from .operands import ALIGN, Buffer, Ref, Rows, round_up

# bytes and operations of an op in a run, given (tokens before the run, tokens in it) of every segment
OpWork = Callable[[Sequence[tuple[int, int]]], tuple[int, int]]


class OwnCounter:
    """Placeholder for the address of an i64 that belongs to the op and is zero when a run begins."""


Operand = int | float | Ref | Rows | None
OpFields = dict[str, Any]  # operands by field, for `Recorder.op`


@dataclass
class Op:
    """A record, and the work of the op: `nbytes`, and `flops` per column.

    With `groups`, nbytes count for each group of columns, since an expert's weights are read when it has columns.
    `work`, if given, is used instead.
    """

    name: str
    kernel: Kernel
    fields: list[int | Ref | OwnCounter]
    nbytes: int = 0
    flops: int = 0
    groups: Ref | None = None
    work: OpWork | None = None


def _size(nbytes: int) -> int:
    """Size of a buffer for nbytes: a multiple of ALIGN, not 0."""
    return round_up(max(nbytes, 1), ALIGN)


def place_buffers(buffers: Sequence[Buffer]) -> int:
    """Set the offset of every buffer, so that buffers alive at the same time do not overlap; returns the total size."""
    used = [item for item in buffers if item.first >= 0]
    end = max((item.first for item in used), default=0) + 1  # some live to `sys.maxsize`
    alive: list[list[Buffer]] = [[] for _ in range(end)]  # by op: the placed buffers
    total = 0
    for item in sorted(used, key=lambda b: -b.nbytes):
        ops = alive[item.first : item.last + 1]
        busy = sorted({(p.offset, p.offset + p.nbytes) for placed in ops for p in placed})
        offset = 0
        for begin, end in busy:
            if offset + item.nbytes <= begin:
                break
            offset = max(offset, end)
        item.offset = offset
        for placed in ops:
            placed.append(item)
        total = max(total, offset + item.nbytes)
    return total


def aligned_empty(nbytes: int) -> np.ndarray:
    """u8 array aligned to 64 bytes, not initialized (and not resident until touched)."""
    raw = np.empty(nbytes + ALIGN, np.uint8)
    skip = -raw.ctypes.data % ALIGN
    return raw[skip : skip + nbytes]


class Program:
    """The records of all ops, their arena and their counters. buffers: all that the ops use; they are placed here."""

    def __init__(self, ops: list[Op], buffers: Sequence[Buffer], capacity: int, n_threads: int) -> None:
        self.ops = ops
        self.capacity, self.n_threads = capacity, n_threads
        self.arena = aligned_empty(place_buffers(buffers))
        n_counters = sum(type(field) is OwnCounter for op in ops for field in op.fields)
        # products need one counter per group of threads (kernels/products/chunks.py), other ops use the first
        room = 64 * n_groups.function(n_threads)
        self.counters = aligned_empty(room * max(1, n_counters)).view(np.int64)
        self.records = aligned_empty(len(ops) * RECORD * 8).view(np.int64).reshape(-1, RECORD)
        base = self.arena.ctypes.data
        counter = self.counters.ctypes.data
        words: list[int] = []
        for op in ops:
            words.append(0)  # for `link`
            for value in op.fields:
                if isinstance(value, int):
                    words.append(value)
                elif isinstance(value, Ref):
                    assert isinstance(value.base, Buffer)
                    words.append(base + value.base.offset + value.offset)
                else:
                    words.append(counter)
                    counter += room
            words += [0] * (RECORD - 1 - len(op.fields))
        self.records.reshape(-1)[:] = words

    @property
    def kernels(self) -> list[Kernel]:
        return [op.kernel for op in self.ops]

    def link(self) -> None:
        """Put the addresses of the compiled kernels into the records."""
        for i, op in enumerate(self.ops):
            self.records[i, 0] = op.kernel.address

    def work_of(self, op: Op, n: int, segments: Sequence[tuple[int, int]]) -> tuple[int, int]:
        """Bytes and operations of an op in the last run, which had n columns; segments as in `OpWork`.

        Ops with groups need a program built with `Builder.keep_groups`.
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

    def view(self, rows: Rows, count: int) -> np.ndarray:
        """The first `count` rows as f32 [count, n], a view that is valid until the next run."""
        assert isinstance(rows.base, Buffer)
        start = rows.base.offset + rows.offset
        block = self.arena[start : start + count * rows.ld].view(np.float32)
        return block.reshape(count, rows.ld // 4)[:, : rows.n]


class Recorder:
    """Collects ops and their buffers, for up to `capacity` columns on `n_threads` threads."""

    def __init__(self, capacity: int, n_threads: int) -> None:
        self.capacity, self.n_threads = capacity, n_threads
        self.ops: list[Op] = []
        self.buffers: list[Buffer] = []
        self.scratch = Buffer(0)
        self._of_context: dict[Buffer, Callable[[int], int]] = {}  # sizes of buffers that depend on the context

    def buffer(self, nbytes: int) -> Buffer:
        """A new buffer in the arena."""
        buffer = Buffer(_size(nbytes))
        self.buffers.append(buffer)
        return buffer

    def buffer_for(self, n_ctx: int, nbytes: Callable[[int], int]) -> Buffer:
        """A new buffer in the arena of nbytes(n_ctx) bytes."""
        buffer = self.buffer(nbytes(n_ctx))
        self._of_context[buffer] = nbytes
        return buffer

    def depends_on_context(self, buffer: Buffer) -> bool:
        """Whether the buffer's size depends on the context."""
        return buffer in self._of_context

    def nbytes(self, n_ctx: int) -> int:
        """Bytes that the arena would have for a context of n_ctx tokens."""
        sizes = {each: _size(nbytes(n_ctx)) for each, nbytes in self._of_context.items()}
        return place_buffers([replace(each, nbytes=sizes.get(each, each.nbytes)) for each in self._all()])

    def _all(self) -> list[Buffer]:
        """All buffers, after the last op was added."""
        self.scratch.first, self.scratch.last = 0, len(self.ops) - 1
        return [*self.buffers, self.scratch] if self.scratch.nbytes else self.buffers

    def rows(self, n: int, capacity: int | None = None) -> Rows:
        """New rows, padded to a multiple of 16 values."""
        ld = round_up(n, 16) * 4
        return Rows(self.buffer(ld * (capacity or self.capacity)), n, ld)

    def need_scratch(self, per_thread: int) -> int:
        """Reserve scratch memory for each thread during an op; returns the bytes from one thread's to the next."""
        per_thread = round_up(per_thread, ALIGN)
        self.scratch.nbytes = max(self.scratch.nbytes, per_thread * self.n_threads)
        return per_thread

    def op(
        self,
        kernel: Kernel,
        /,
        *,
        name: str = "",
        nbytes: int = 0,
        flops: int = 0,
        work: OpWork | None = None,
        **fields: Operand,
    ) -> None:
        """Append an op. fields: the kernel's, by name; None: not given, as fields with defaults need not be.

        Rows also give their stride: `x=rows` sets fields x and ldx. `nbytes`, `flops`, `work`: see `Op`; groups are the
        kernel's field `groups`, if it is an address in the arena. Raises TypeError when fields are missing or unknown,
        or a float is given for an integer or an integer for a float.
        """
        strides = {field: value.ld for field, value in fields.items() if isinstance(value, Rows)}
        given = {field: value.ref if isinstance(value, Rows) else value for field, value in fields.items()}
        record: list[int | Ref | OwnCounter] = []
        for field, value in kernel.layout.arranged(given, strides, OwnCounter):
            if isinstance(value, Ref):
                record.append(self._used(value))
            else:
                record.append(value if isinstance(value, OwnCounter) else field.word(value))
        groups = given.get("groups")
        if not isinstance(groups, Ref):
            groups = None
        self.ops.append(Op(name or kernel.name, kernel, record, nbytes, flops, groups, work))

    def _used(self, ref: Ref) -> Ref | int:
        """The operand for the record of the next op. Extends the life of its buffer to that op."""
        if isinstance(ref.base, int):
            return ref.base + ref.offset
        index = len(self.ops)
        ref.base.first = index if ref.base.first < 0 else ref.base.first
        ref.base.last = max(index, ref.base.last)
        return ref

    def keep(self, *operands: Rows | Ref) -> None:
        """Keep the memory of the operands' buffers to the end of the program, to be read after a run."""
        for operand in operands:
            if isinstance(operand.base, Buffer):
                operand.base.last = sys.maxsize

    def build(self) -> Program:
        """The program. Call its `link` when its kernels are compiled."""
        return Program(self.ops, self._all(), self.capacity, self.n_threads)
