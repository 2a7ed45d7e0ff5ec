"""Copy texts out of the prompt cache and into it in a thread that does not own the memory.

    out    `hold` keeps the pages and the row of a text from being written, `arrays` copies them,
           `HybridMemory.end_loan` ends the hold
    in     `take` takes room that nobody else knows, `fill` writes to it, `add` makes it part of the cache

Only the owner of the memory may call the first and last of each; any thread, the middle one.
"""

from dataclasses import dataclass

import numpy as np

from ..kernels.attention.kv import pages_of
from .cache import PromptCache
from .hybrid import HybridMemory
from .prefix_tree import Checkpoint, Tokens


@dataclass(eq=False)
class HeldText:
    """The pages and the state row of a text of at least one token; row: -1 where there are no states."""

    ids: Tokens
    pages: list[int]
    row: int
    logits: np.ndarray | None = None
    owner: bytes = b""


def hold(cache: PromptCache, ids: Tokens, owner: bytes = b"") -> HeldText | None:
    """Hold the longest known prefix of `ids` from which the model can continue; None if there is no such prefix."""
    memory = cache.memory
    node, n = cache.tree.match(ids, owner)
    points = [c for part in node.path() for c in part.checkpoints.values() if c.position <= n]
    last = max(points, key=lambda c: c.position, default=None)
    row = -1
    if memory.is_recurrent:
        if last is None:
            return None
        n, row = last.position, cache.row_of(last)
    if not n:
        return None
    logits = last.logits if last is not None and last.position == n else None
    pages = [memory.attention.pool.share(page) for page in cache.tree.pages(node, n)]
    text = HeldText(ids[:n].copy(), pages, row, logits, owner)
    memory.lend(text)
    return text


def arrays(memory: HybridMemory, text: HeldText) -> dict[str, np.ndarray]:
    """Copy the arrays of a text, named as in `HybridMemory.layout`."""
    result = dict(memory.attention.export(text.pages, len(text.ids)))
    return result | dict(memory.recurrent.export(text.row)) if text.row >= 0 else result


def take(cache: PromptCache, ids: Tokens, logits: np.ndarray | None, owner: bytes = b"") -> HeldText:
    """Take room for a text. Raises StateError if the memory is full."""
    memory = cache.memory
    text = HeldText(ids, [], -1, logits, owner)
    if memory.attention.specs:
        text.pages = memory.attention.pool.take_many(pages_of(len(ids)))
    try:
        text.row = memory.recurrent.pool.take() if memory.is_recurrent else -1
    except BaseException:
        memory.end_loan(text)
        raise
    memory.lend(text)
    return text


def fill(memory: HybridMemory, text: HeldText, arrays: dict[str, np.ndarray]) -> None:
    """Write arrays of `arrays` into the room; names, types and shapes have been checked."""
    if text.pages:
        memory.attention.load(text.pages, len(text.ids), arrays)
    if text.row >= 0:
        memory.recurrent.load(text.row, arrays)


def add(cache: PromptCache, text: HeldText) -> None:
    """Add a filled text to the cache; the caller no longer owns its room."""
    node = cache.tree.insert(text.ids, text.pages, text.owner)
    n = len(text.ids)
    if n not in node.checkpoints:
        row = cache.memory.recurrent.pool.share(text.row) if text.row >= 0 else -1
        cache.place(node, Checkpoint(n, row, True, text.logits))
    cache.memory.end_loan(text)
    cache.trim()
