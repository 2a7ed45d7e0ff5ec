"""Rows that a layer keeps per token, or per group of tokens: see memory/rows.py."""

from dataclasses import dataclass
from typing import NamedTuple

from ..kernels.attention.kv import KVType
from ..kernels.attention.row_store import ROW_STORE, row_scratch_bytes
from ..memory import HybridMemory, RowsSpec
from ..program.builder import Builder, Ref, Rows


class RowPlace(NamedTuple):
    """Address of the rows, address and row stride (bytes) of the page table, and the type of the rows."""

    rows: int
    table: int
    table_stride: int
    kind: KVType


@dataclass
class KeptRows:
    """The rows `part` of a layer: n_head rows of n values for every `every` tokens."""

    layer: int
    part: str
    n: int
    n_head: int = 1
    every: int = 1
    mixer: str = "attention"

    @property
    def spec(self) -> RowsSpec:
        """The needs of these rows, for the memory."""
        return RowsSpec(self.layer, self.part, self.n, self.n_head, self.every, self.mixer)

    def place(self, memory: HybridMemory) -> RowPlace:
        """The addresses of these rows."""
        attention = memory.attention
        stored = attention.rows[self.spec.key]
        return RowPlace(
            stored.ctypes.data, attention.table.ctypes.data, attention.table.strides[0], attention.kind.rows
        )

    def store(self, b: Builder, x: Rows, memory: HybridMemory) -> None:
        """Store rows [n_head * n] of those tokens of the batch that complete a group."""
        batch, at = b.batch, self.place(memory)
        per_thread = b.need_scratch(row_scratch_bytes(self.n))
        b.op(
            ROW_STORE[at.kind.name], name="row_store", ctl=batch.ctl, pos=batch.pos, slot=batch.slot, x=x, rows=at.rows,
            table=at.table, table_stride=at.table_stride, n_head=self.n_head, n=self.n, every=self.every,
            scratch=Ref(b.scratch), scratch_bytes=per_thread,
        )  # fmt: skip
