"""Pinned texts, which the prompt cache never gives up to make room: at most half of its budget.

A pin holds the keys and values of one text and, where there are recurrent layers, its last POINTS checkpoints at
boundaries: the ends of the last prompt and of its answer, from which people continue. Where several parties share the
memory, each may pin an equal part of that half; owners of the same party begin with the same PARTY_BYTES bytes.
"""

from collections.abc import Iterable

from hybrid.quant.ggml.byte_sizes import size_text
from hybrid.quant.ggml.errors import UsageError

from ..kernels.attention.kv import pages_of
from .hybrid import HybridMemory
from .prefix_tree import Checkpoint, Node, PrefixTree, Tokens

SHARE = 2  # pins take at most 1 / SHARE of the budget
POINTS = 2
OWNER_BYTES = 16  # of an owner that is not anonymous
PARTY_BYTES = 4  # the first bytes of an owner name its party


class Pins:
    """The pins of one tree. n_parties: how many parties share the room for pins."""

    def __init__(self, memory: HybridMemory, tree: PrefixTree) -> None:
        self.memory, self.tree = memory, tree
        self.n_parties = 1
        self._nodes: list[Node] = []

    @property
    def nodes(self) -> list[Node]:
        """The nodes in which the pinned texts end."""
        self._nodes = [node for node in self._nodes if node.pinned]
        return self._nodes

    def clear(self) -> None:
        """Unpin everything."""
        for node in self._nodes:
            node.pinned = 0

    def held(self) -> set[int]:
        """The checkpoints that pins keep, by their id()."""
        return {id(point) for node in self.nodes for point in _points(node)}

    def nbytes(self, nodes: Iterable[Node] | None = None) -> int:
        """Bytes of the pages and checkpoints that pins of `nodes` (default: all) hold, alone or with other owners."""
        nodes = self.nodes if nodes is None else list(nodes)
        points = {id(point): point for node in nodes for point in _points(node)}
        return len(_pages(nodes)) * self.memory.attention.bytes_per_page + sum(map(self._size, points.values()))

    def _size(self, point: Checkpoint) -> int:
        state = point.parked.nbytes if point.parked is not None else self.memory.bytes_state_per_seq
        return state * self.memory.is_recurrent + (point.logits.nbytes if point.logits is not None else 0)

    def check(self, ids: Tokens, n_vocab: int, budget: int, owner: bytes = b"") -> None:
        """Raises UsageError if a text that begins with `ids` is too large to be pinned as well."""
        node, n = self.tree.match(ids, owner)
        others = self._others(node)
        new = len(_pages([*others, node]) - _pages(others))
        if n < len(ids) and self.memory.attention.specs:
            new += pages_of(len(ids) - n) + bool(n)  # both texts own a page in which they diverge
        size = new * self.memory.attention.bytes_per_page
        size += POINTS * (self.memory.bytes_state_per_seq + 4 * n_vocab)
        self._limit(len(ids), size, others, budget, owner)

    def add(self, ids: Tokens, n_prompt: int, budget: int, owner: bytes = b"") -> Node | None:
        """Pin the known prefix of a text, in place of earlier pins of its conversation. Returns None if nothing is
        known.

        n_prompt: tokens of the text's last prompt. Raises UsageError if it is too large; earlier pins then stay.
        """
        node, n = self.tree.match(ids, owner)
        if not n:
            return None
        others = self._others(node)
        self._limit(n, self.nbytes([*others, node]) - self.nbytes(others), others, budget, owner)
        self.drop(node)
        self._nodes = [*self.nodes, node]
        node.pinned = max(1, n_prompt)
        return node

    def drop(self, node: Node) -> None:
        """Unpin the conversation that ends here."""
        for each in self.nodes:
            if _is_earlier(each, node):
                each.pinned = 0

    def _others(self, node: Node) -> list[Node]:
        return [each for each in self.nodes if not _is_earlier(each, node)]

    def _limit(self, n: int, need: int, others: list[Node], budget: int, owner: bytes) -> None:
        room = "half of the budget for checkpoints"
        if self.n_parties > 1:  # parties share no texts, so their sum stays within the half
            others = [each for each in others if each.root.owner[:PARTY_BYTES] == owner[:PARTY_BYTES]]
            room = f"of {room}, the share of one of {self.n_parties} keys"
        held, most = self.nbytes(others), budget // SHARE // self.n_parties
        if held + need > most:
            raise UsageError(
                f"keeping {n} tokens needs {size_text(need)}; {size_text(held)} are already kept, and the limit is "
                f"{size_text(most)}: {room}. Give up a kept text."
            )


def _points(node: Node) -> list[Checkpoint]:
    points = sorted((c for part in node.path() for c in part.checkpoints.values()), key=lambda c: c.position)
    return ([c for c in points if c.boundary] or points)[-POINTS:]


def _is_earlier(pinned: Node, node: Node) -> bool:
    """Whether the text in `node` continues a pinned text, or gives another answer to its prompt.

    A template may render an answer differently from the sampled text, so a common prompt is enough. A pinned text that
    other texts also continue does not count: somebody may have pinned it for all of them.
    """
    above = node.path()
    if pinned in above:
        return all(len(part.children) == 1 for part in above[above.index(pinned) : -1])
    shared = set(map(id, above))
    return max((part.end for part in pinned.path() if id(part) in shared), default=0) >= pinned.pinned


def _pages(nodes: Iterable[Node]) -> set[int]:
    return {page for node in nodes for part in node.path() for page in part.pages}


def text_bytes(node: Node, memory: HybridMemory) -> int:
    """Bytes of a node's keys, values, states and logits; a page shared with a neighbouring node counts in both."""
    points = node.checkpoints.values()
    size = sum(c.parked.nbytes if c.parked is not None else memory.bytes_state_per_seq for c in points)
    logits = sum(c.logits.nbytes for c in points if c.logits is not None)
    return len(node.pages) * memory.attention.bytes_per_page + size * memory.is_recurrent + logits
