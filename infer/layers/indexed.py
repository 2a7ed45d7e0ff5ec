"""Choose the best entries (which stand for groups of tokens) for attention, as lists of rows.

DeepSeek-V3.2's lightning indexer, on keys of groups.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ..kernels.attention.selection import (
    INDEX_SCORES,
    choice_scratch_bytes,
    choose_rows,
    index_scratch_bytes,
    score_row_bytes,
)
from ..memory import HybridMemory
from ..program.builder import Builder, Ref, Rows, round_up
from .kept_rows import KeptRows
from .listed_attention import Lists


def _items(layer: int) -> str:
    return f"blk.{layer}.lists"


def _counts(layer: int) -> str:
    return f"blk.{layer}.counts"


def has_lists(b: Builder, layer: int) -> bool:
    """Whether `layer` has lists that depend on the batch alone."""
    return _items(layer) in b.common


def lists_of(b: Builder, layer: int) -> Lists:
    """The lists of an earlier `layer`."""
    left = b.common if has_lists(b, layer) else b.named
    items, counts = left[_items(layer)], left[_counts(layer)]
    return Lists(items.ref, items.ld, counts.ref, items.n)


@dataclass
class EntryChoice:
    """Chooses for every token the n_best of the entries before it.

    layer       the name of the choice: later layers may ask for it, see `lists_of`
    every       tokens per entry
    n_best      0: all entries, which then are not scored
    keys        of the entries, which the layer stores before it chooses; None where they are not scored
    n_head      number of index queries, which are as wide as a key
    scale       of the scores; affects only rounding
    as_entries  the lists have the entries themselves and the last `window` tokens; otherwise the tokens of the entries,
                and those after the last whole group
    """

    layer: int
    every: int
    n_best: int
    keys: KeptRows | None = None
    n_head: int = 0
    scale: float = 1.0
    as_entries: bool = False
    window: int = 0

    def most(self, n_ctx: int) -> int:
        """Capacity of a list."""
        n = n_ctx // self.every
        n = min(n, self.n_best) if self.n_best else n
        return n + min(self.window, n_ctx) if self.as_entries else min(n_ctx, (n + 1) * self.every - 1)

    def lists(self, b: Builder, memory: HybridMemory, q: Rows | None = None, weights: Rows | None = None) -> Lists:
        """The lists of the batch, for `ListedAttention`.

        q        [n_head * keys.n], after RoPE; None where all entries are taken
        weights  [n_head] weights of the heads' scores; None: all equal
        """
        batch, n_ctx = b.batch, memory.n_ctx
        scored, stride = None, 0
        if q is not None and self.keys is not None:
            scored, stride = self._scores(b, memory, q, weights), score_row_bytes(n_ctx, self.every)
        items = b.buffer_for(n_ctx, lambda n: b.capacity * self._stride(n))
        left = b.common if scored is None else b.named
        left[_items(self.layer)] = Rows(items, self.most(n_ctx), self._stride(n_ctx))
        left[_counts(self.layer)] = Rows(b.buffer(8 * b.capacity), 1, 8)
        lists = lists_of(b, self.layer)
        b.op(
            choose_rows, ctl=batch.ctl, pos=batch.pos, every=self.every, n_best=self.n_best, scores=scored,
            score_stride=stride, as_entries=int(self.as_entries), window=self.window, lists=lists.items,
            list_stride=lists.stride, counts=lists.counts, scratch=Ref(b.scratch),
            scratch_bytes=b.need_scratch(choice_scratch_bytes()),
        )  # fmt: skip
        return lists

    def _stride(self, n_ctx: int) -> int:
        return round_up(4 * self.most(n_ctx), 16)

    def _scores(self, b: Builder, memory: HybridMemory, q: Rows, weights: Rows | None) -> Ref:
        assert self.keys is not None and self.n_best
        batch, at, n = b.batch, self.keys.place(memory), self.keys.n
        scores = Ref(b.buffer_for(memory.n_ctx, lambda n_ctx: b.capacity * score_row_bytes(n_ctx, self.every)))

        def work(segments: Sequence[tuple[int, int]]) -> tuple[int, int]:
            seen = [p // self.every for past, n_tok in segments for p in range(past + 1, past + n_tok + 1)]
            scored = [e for e in seen if e > self.n_best]
            last = [(past + n_tok) // self.every for past, n_tok in segments]
            n_read = sum(e for e in last if e > self.n_best)
            return n_read * at.kind.row_bytes(n), 2 * sum(scored) * self.n_head * n

        b.op(
            INDEX_SCORES[at.kind.name], name="index_scores", work=work, ctl=batch.ctl, pos=batch.pos, slot=batch.slot,
            q=q, weights=weights, keys=at.rows, table=at.table, table_stride=at.table_stride, every=self.every,
            n_head=self.n_head, n=n, n_best=self.n_best, scale=float(self.scale), scores=scores,
            score_stride=score_row_bytes(memory.n_ctx, self.every), scratch=Ref(b.scratch),
            scratch_bytes=b.need_scratch(index_scratch_bytes(n)),
        )  # fmt: skip
        return scores
