"""The prompt cache of a leader. Stages also save its pages and rows in files, which outlive them (stage_files.py).

A page or a row that the cache holds is not overwritten until the cache lets go of it. So its number, and how often the
cache has let go of it, identify its content. Whenever the cache gets a checkpoint, the leader tells the stages which
are new and which have gone.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..kernels.attention.kv import PAGE
from ..memory import PromptCache
from ..memory.prefix_tree import Checkpoint, Node
from .memory import CountedPool, LedMemory
from .orders import AskKept, Keep, TakeUp
from .stage_files import Place

if TYPE_CHECKING:
    from .line import Foreman

Places = set[Place]


class StagedCache(PromptCache):
    """The leader's prompt cache."""

    memory: LedMemory

    def __init__(self, memory: LedMemory, budget: int, foreman: "Foreman") -> None:
        super().__init__(memory, budget)
        self._foreman = foreman
        self._pages: Places = set()  # that the stages were ordered to save
        self._rows: Places = set()

    def keep(
        self, seq: int, ids: Sequence[int], *, boundary: bool, logits: np.ndarray | None = None, owner: bytes = b""
    ) -> Checkpoint:
        """As `PromptCache.keep`."""
        point = super().keep(seq, ids, boundary=boundary, logits=logits, owner=owner)
        pages, rows = self._held()
        new, gone = (pages - self._pages, rows - self._rows), (self._pages - pages, self._rows - rows)
        if any(new) or any(gone):
            self._foreman.order(Keep(*map(sorted, new), *map(sorted, gone)))
        self._pages, self._rows = pages, rows
        return point

    def _held(self) -> tuple[Places, Places]:
        pages, rows = self.memory.attention.pool, self.memory.recurrent.pool
        assert isinstance(pages, CountedPool) and isinstance(rows, CountedPool)
        held_pages = {page for node in self.tree for page in node.pages}
        held_rows = {point.row for node in self.tree for point in node.checkpoints.values() if point.row >= 0}
        return {(p, pages.versions[p]) for p in held_pages}, {(r, rows.versions[r]) for r in held_rows}

    def take_up(self) -> None:
        """After all stages were opened again, load what all stages have saved and forget the rest."""
        answers = self._foreman.put(AskKept()).wait(None)
        pages, rows = _everywhere(answers, "pages"), _everywhere(answers, "rows")
        self._forget_pages_but({p for p, _ in pages & self._held()[0]})
        if self.memory.is_recurrent:
            self._forget_rows_but({r for r, _ in rows & self._held()[1]})
        self._pages, self._rows = held = self._held()
        assert self._pages <= pages and self._rows <= rows
        self._foreman.order(TakeUp(*map(sorted, held)))
        there = _anywhere(answers, "pages") - self._pages, _anywhere(answers, "rows") - self._rows
        self._foreman.order(Keep([], [], *map(sorted, there)))

    def _forget_pages_but(self, there: set[int]) -> None:
        waiting = [child for root in self.tree.roots.values() for child in root.children.values()]
        while waiting:
            node = waiting.pop()
            n = next((i for i, page in enumerate(node.pages) if page not in there), None)
            if n is None:
                waiting += node.children.values()
            else:
                self._cut(node, (node.start // PAGE + n) * PAGE)

    def _cut(self, node: Node, n: int) -> None:
        """Forget everything after the first n tokens of the path to `node`."""
        if n > node.start:
            self.tree.split(node, n)
        self.forget(node)

    def _forget_rows_but(self, there: set[int]) -> None:
        nodes: Iterable[Node] = [*self.tree]
        for node in nodes:
            lost = [point for point in node.checkpoints.values() if point.row >= 0 and point.row not in there]
            for point in lost:
                self._drop(node, point)
        for node in nodes:
            if node.parent is not None and node.parent.children.get(int(node.tokens[0])) is node:
                self._remove_bare(node)


def _everywhere(answers: Sequence[object], what: str) -> Places:
    """Pages or rows that all stages have."""
    return set.intersection(*_places(answers, what))


def _anywhere(answers: Sequence[object], what: str) -> Places:
    """Pages or rows that at least one stage has."""
    return set.union(*_places(answers, what))


def _places(answers: Sequence[object], what: str) -> list[Places]:
    """The pages or rows of each stage."""
    found = []
    for answer in answers:
        assert isinstance(answer, dict)
        found.append({(int(n), int(version)) for n, version in answer[what]})
    return found
