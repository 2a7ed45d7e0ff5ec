"""The leader's memory of a model in stages: which pages and rows of states sequences and checkpoints have. The stages
hold their content, and get an order for everything that happens to it.
"""

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ..kernels.attention.kv import CacheTypes
from ..memory import HybridMemory
from ..memory.attention import AttentionMemory, AttentionSpec
from ..memory.needs import Specs, split_specs
from ..memory.pool import IndexPool
from ..memory.recurrent import RecurrentMemory, RecurrentSpec
from ..memory.rows import RowsSpec
from . import orders

if TYPE_CHECKING:
    from .line import Foreman


class CountedPool(IndexPool):
    """versions: how often the prompt cache has let go of each index; after that it may be overwritten."""

    def __init__(self, size: int, what: str) -> None:
        super().__init__(size, what)
        self.versions: Counter[int] = Counter()

    def let_go(self, place: int) -> None:
        """As `IndexPool.let_go`."""
        super().let_go(place)
        self.versions[place] += not self._held[place]


class LedPages(AttentionMemory):
    """Bookkeeping of pages, with memory for one page, of which only the layout is used."""

    def __init__(
        self, specs: list[AttentionSpec | RowsSpec], n_slots: int, n_ctx: int, kind: CacheTypes, n_spare: int,
        foreman: "Foreman",
    ) -> None:  # fmt: skip
        self._foreman = foreman
        super().__init__(specs, n_slots, n_ctx, kind, n_spare)
        self.pool = CountedPool(self.pool.size, self.pool.what)

    @property
    def n_stored(self) -> int:
        return min(1, self.pool.size)

    def _put(self, slot: int, i: int, page: int) -> None:
        super()._put(slot, i, page)
        self._foreman.pages.append((slot, i, page))

    def copy_page(self, source: int, target: int) -> None:
        self._foreman.order(orders.CopyPage(source, target))

    def move_down(self, slot: int, start: int, end: int, n: int) -> None:
        self._foreman.order(orders.MoveDown(slot, start, end, n))

    def turn(self, slot: int, start: int, deltas: npt.NDArray[np.int64]) -> None:
        self._foreman.order(orders.TurnKeys(slot, start, deltas))

    def export(self, pages: list[int], end: int, start: int = 0) -> Iterator[tuple[str, np.ndarray]]:
        found = self._foreman.ask(orders.ExportPages(pages, end, start))
        for name in self.layout(end, start):
            yield name, found[name]

    def load(self, pages: list[int], end: int, arrays: dict[str, np.ndarray], start: int = 0) -> None:
        self._foreman.order(orders.LoadPages(pages, end, arrays, start))

    def fill_pages(self, pages: list[int], rng: np.random.Generator) -> None:
        self._foreman.order(orders.FillPages(list(pages)))


class LedStates(RecurrentMemory):
    """Bookkeeping of rows of states, without memory for them."""

    def __init__(self, specs: list[RecurrentSpec], n_slots: int, n_spare: int, foreman: "Foreman") -> None:
        self._foreman = foreman
        super().__init__(specs, n_slots, n_spare)
        self.pool = CountedPool(self.pool.size, self.pool.what)

    @property
    def n_stored(self) -> int:
        return 0

    def fill_row(self, row: int, rng: np.random.Generator) -> None:
        self._foreman.order(orders.FillRow(row))

    def export(self, row: int) -> Iterator[tuple[str, np.ndarray]]:
        found = self._foreman.ask(orders.ExportRow(row))
        for name in self.shapes():
            yield name, found[name]

    def load(self, row: int, arrays: dict[str, np.ndarray]) -> None:
        self._foreman.order(orders.LoadRow(row, {name: np.array(arrays[name]) for name in self.shapes()}))


class LedMemory(HybridMemory):
    """The leader's memory. n_spare_pages, n_spare_rows: number of spare pages and rows of every stage."""

    def __init__(
        self, specs: Specs, n_seq_max: int, n_ctx: int, kind: CacheTypes, n_spare_pages: int, n_spare_rows: int,
        foreman: "Foreman",
    ) -> None:  # fmt: skip
        self._foreman = foreman
        self.n_spare_pages, self.n_spare_rows = n_spare_pages, n_spare_rows
        super().__init__(specs, n_seq_max, n_ctx, kind, n_spare_pages, n_spare_rows)

    def _parts(
        self, specs: Specs, n_seq_max: int, n_ctx: int, kind: CacheTypes, n_spare_pages: int, n_spare_rows: int
    ) -> tuple[AttentionMemory, RecurrentMemory]:
        kv, states = split_specs(specs)
        pages = LedPages(kv, n_seq_max, n_ctx, kind, n_spare_pages, self._foreman)
        return pages, LedStates(states, n_seq_max, n_spare_rows, self._foreman)

    # --- undoing passes that were ordered ---
    def hold_row(self, seq: int) -> tuple[int, int]:
        """A sequence's number of tokens and row of states (-1: none), kept until `let_row_go` or `go_back`."""
        self.check(seq)
        past, row = int(self.n_past[seq]), self.recurrent.row[seq]
        return past, self.recurrent.pool.share(row) if past and row >= 0 else -1

    def let_row_go(self, row: int) -> None:
        """Release a row of `hold_row`, which is not needed any more."""
        if row >= 0:
            self.recurrent.pool.drop(row)

    def go_back(self, seq: int, past: int, row: int) -> None:
        """Take a sequence back to its state when `hold_row` returned `past` and `row`."""
        if (move := self._moves.get(seq)) is not None:
            self.abandon(move)
        if row >= 0:
            self.recurrent.put(seq, row)
        self.n_past[seq] = past
        self.trim(seq)
