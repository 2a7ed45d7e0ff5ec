"""Recount the owners of all pages and rows, after a fault in the middle of a change of the memory.

Sequences, the tree of the prompt cache and loans list their pages and rows. A sequence that was being changed is lost:
the caller names it. The tree is trusted if it is whole, and forgotten otherwise. The contents of pages and rows need no
check: a page or row with another owner is copied before it is written, so a fault changes nothing that others have.
"""

from collections import Counter
from collections.abc import Iterable

from ..kernels.attention.kv import PAGE, pages_of
from .cache import PromptCache
from .hybrid import HybridMemory
from .prefix_tree import Checkpoint, Node


def recount(memory: HybridMemory, cache: PromptCache | None, lost: Iterable[int]) -> list[int]:
    """Empty the sequences `lost`, and correct the owners of every page and row.

    Returns further sequences whose pages or rows were inconsistent: these are emptied as well.
    """
    gone = set(lost)
    unsound = [seq for seq in range(memory.n_seq_max) if seq not in gone and not memory.is_sound(seq)]
    for seq in (*gone, *unsound):
        memory.wipe(seq)
    pages: Counter[int] = Counter()
    rows: Counter[int] = Counter()
    for seq in range(memory.n_seq_max):
        pages.update(memory.attention.pages(seq))
        rows.update(memory.rows_of(seq))
    for loan in memory.loans:
        pages.update(loan.pages)
        rows.update([loan.row] if loan.row >= 0 else [])
    kept_pages, kept_rows = _kept(memory, cache) if cache is not None else (Counter[int](), Counter[int]())
    memory.attention.pool.recount(pages + kept_pages, kept_pages)
    memory.recurrent.pool.recount(rows + kept_rows, kept_rows)
    return unsound


def _kept(memory: HybridMemory, cache: PromptCache) -> tuple[Counter[int], Counter[int]]:
    """How often the cache owns each page and row. Drops checkpoints without a state, and forgets a broken tree."""
    if not all(_is_whole(node, memory) for node in (*cache.tree.roots.values(), *cache.tree)):
        cache.forget_all()
    pages: Counter[int] = Counter()
    rows: Counter[int] = Counter()
    for node in cache.tree:
        pages.update(node.pages)
        for point in list(node.checkpoints.values()):
            if not _has_its_state(point, memory):
                del node.checkpoints[point.position]
            elif point.row >= 0:
                rows[point.row] += 1
    cache.weigh()
    return pages, rows


def _is_whole(node: Node, memory: HybridMemory) -> bool:
    """Whether a node has the pages of its tokens, and its children start where it ends."""
    n_pages = pages_of(node.end) - node.start // PAGE if memory.attention.specs and node.parent is not None else 0
    children, points = node.children.items(), node.checkpoints.items()
    return (
        len(node.pages) == n_pages
        and all(0 <= page < memory.attention.pool.touched for page in node.pages)
        and all(position == point.position and node.start < position <= node.end for position, point in points)
        and all(child.parent is node and child.start == node.end and len(child.tokens) for _, child in children)
        and all(int(child.tokens[0]) == token for token, child in children)
    )


def _has_its_state(point: Checkpoint, memory: HybridMemory) -> bool:
    if not memory.is_recurrent or point.parked is not None:
        return point.row == -1
    return 0 <= point.row < memory.recurrent.pool.touched
