"""What a layer keeps of tokens, or of groups of them, as rows: see memory/rows.py."""

from dataclasses import dataclass
from typing import NamedTuple

from ..kernels.attention.kv import KVType
from ..kernels.attention.row_store import ROW_STORE, row_scratch_bytes
from ..memory import HybridMemory, RowsSpec
from ..program.builder import Builder, Ref, Rows


class RowPlace(NamedTuple):
    """Where rows lie: their address, the table of pages and bytes from row to row of it, how they are kept."""

    rows: int
    table: int
    table_stride: int
    kind: KVType


@dataclass
class KeptRows:
    """The part `part` of what a layer keeps: n_head rows of n values for every `every` tokens."""

    layer: int
    part: str
    n: int
    n_head: int = 1
    every: int = 1
    mixer: str = "attention"

    @property
    def spec(self) -> RowsSpec:
        """What the memory is to have."""
        return RowsSpec(self.layer, self.part, self.n, self.n_head, self.every, self.mixer)

    def place(self, memory: HybridMemory) -> RowPlace:
        """Where the memory has them."""
        attention = memory.attention
        stored = attention.rows[self.spec.key]
        return RowPlace(stored.ctypes.data, attention.table.ctypes.data, attention.table.strides[0], attention.kind)

    def store(self, b: Builder, x: Rows, memory: HybridMemory) -> None:
        """Keep rows [n_head * n] of those tokens of the batch with which a group is complete."""
        batch, at = b.batch, self.place(memory)
        per_thread = b.need_scratch(row_scratch_bytes(self.n))
        b.op(
            ROW_STORE[at.kind.name], name="row_store", ctl=batch.ctl, pos=batch.pos, slot=batch.slot, x=x, rows=at.rows,
            table=at.table, table_stride=at.table_stride, n_head=self.n_head, n=self.n, every=self.every,
            scratch=Ref(b.scratch), scratch_bytes=per_thread,
        )  # fmt: skip
