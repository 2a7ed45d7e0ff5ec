"""Attention over a list of rows per token, which indexers and compressors make."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..kernels.attention.attention import attention_scratch_bytes
from ..kernels.attention.listed import LISTED
from ..memory import HybridMemory
from ..program.builder import Builder, Ref, Rows
from .kept_rows import KeptRows


@dataclass(frozen=True)
class Lists:
    """The rows to which each token of a batch attends: kernels/attention/listed.py.

    items   i32 [tok][most], `stride` bytes from list to list
    counts  i64 [tok], items in use
    most    capacity of a list; the work is estimated by it
    """

    items: Ref
    stride: int
    counts: Ref
    most: int


@dataclass
class ListedAttention:
    """n_head query heads over the heads of `keys` and `values`.

    keys, values      of every token; values are at most as wide; may be the same rows
    entries           keys that are also values, of groups of tokens; None: lists name tokens only
    scale             of the scores; 0: 1 / sqrt(d_head)
    """

    n_head: int
    keys: KeptRows
    values: KeptRows
    entries: KeptRows | None = None
    scale: float = 0.0

    def attend(self, b: Builder, q: Rows, lists: Lists, memory: HybridMemory, sinks: int = 0) -> Rows:
        """The heads' results for queries [n_head * d_head]. sinks: address of a logit per head; 0: no sinks."""
        batch, n, d_value = b.batch, self.keys.n, self.values.n
        keys, values = self.keys.place(memory), self.values.place(memory)
        entries = self.entries.place(memory).rows if self.entries else None
        out, per_thread = b.rows(self.n_head * d_value), b.need_scratch(attention_scratch_bytes(n))

        def work(segments: Sequence[tuple[int, int]]) -> tuple[int, int]:
            seen = sum(min(p, lists.most) for past, n_tok in segments for p in range(past + 1, past + n_tok + 1))
            size = keys.kind.row_bytes(n) + (0 if values.rows == keys.rows else keys.kind.row_bytes(d_value))
            return seen * self.keys.n_head * size, 2 * seen * self.n_head * (n + d_value)

        b.op(
            LISTED[keys.kind.name], name="attention", work=work, ctl=batch.ctl, slot=batch.slot, q=q, lists=lists.items,
            list_stride=lists.stride, counts=lists.counts, keys=keys.rows, values=values.rows, entry_keys=entries,
            entry_values=entries, every=self.entries.every if self.entries else 1, table=keys.table,
            table_stride=keys.table_stride, out=out, n_head=self.n_head, n_kv=self.keys.n_head, d_head=n,
            d_value=d_value, scale=self.scale or 1 / math.sqrt(n), scratch=Ref(b.scratch), scratch_bytes=per_thread,
            sinks=sinks,
        )  # fmt: skip
        return out
