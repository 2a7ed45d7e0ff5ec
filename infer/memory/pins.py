"""Texts that are kept whatever else there is no room for: at most half of the budget of the prompt cache.

A pin holds the keys and values of one text and, where there are recurrent layers, its last POINTS checkpoints at
boundaries: the ends of the last prompt and of its answer, from which people go on. Where several parties share the
memory each may pin the same part of that half; owners of the same party begin with the same PARTY_BYTES bytes.
"""

from collections.abc import Iterable

from hybrid.quant.ggml.byte_sizes import size_text
from hybrid.quant.ggml.errors import UsageError

from ..kernels.attention.kv import pages_of
from .hybrid import HybridMemory
from .prefix_tree import Checkpoint, Node, PrefixTree, Tokens

SHARE = 2  # of the budget, one in so many parts
POINTS = 2
PARTY_BYTES = 4  # of an owner


class Pins:
    """Those of one tree. n_parties: that share the room for pins."""

    def __init__(self, memory: HybridMemory, tree: PrefixTree) -> None:
        self.memory, self.tree = memory, tree
        self.n_parties = 1
        self._nodes: list[Node] = []

    @property
    def nodes(self) -> list[Node]:
        """Where the pinned texts end."""
        self._nodes = [node for node in self._nodes if node.pinned]
        return self._nodes

    def clear(self) -> None:
        """Nothing is pinned any more."""
        for node in self._nodes:
            node.pinned = 0

    def held(self) -> set[int]:
        """The checkpoints that stay, by their id()."""
        return {id(point) for node in self.nodes for point in _points(node)}

    def nbytes(self, nodes: Iterable[Node] | None = None) -> int:
        """Bytes of what the pins hold, whoever else has it too."""
        nodes = self.nodes if nodes is None else list(nodes)
        points = {id(point): point for node in nodes for point in _points(node)}
        return len(_pages(nodes)) * self.memory.attention.bytes_per_page + sum(map(self._size, points.values()))

    def _size(self, point: Checkpoint) -> int:
        state = point.parked.nbytes if point.parked is not None else self.memory.bytes_state_per_seq
        return state * self.memory.is_recurrent + (point.logits.nbytes if point.logits is not None else 0)

    def check(self, ids: Tokens, n_vocab: int, budget: int, owner: bytes = b"") -> None:
        """UsageError: a text that begins with these tokens is too large to be pinned beside the others."""
        node, n = self.tree.match(ids, owner)
        others = self._others(node)
        new = len(_pages([*others, node]) - _pages(others))
        if n < len(ids) and self.memory.attention.specs:
            new += pages_of(len(ids) - n) + bool(n)  # where they part, both own the page
        size = new * self.memory.attention.bytes_per_page
        size += POINTS * (self.memory.bytes_state_per_seq + 4 * n_vocab)
        self._limit(len(ids), size, others, budget, owner)

    def add(self, ids: Tokens, n_prompt: int, budget: int, owner: bytes = b"") -> Node | None:
        """Pin as much as is known of a text, in place of what was pinned of the same conversation; n_prompt: tokens
        of its last prompt. UsageError: it is too large, and what was pinned stays so."""
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
        """Nothing of the conversation that ends here is pinned any more."""
        for each in self.nodes:
            if _is_earlier(each, node):
                each.pinned = 0

    def _others(self, node: Node) -> list[Node]:
        return [each for each in self.nodes if not _is_earlier(each, node)]

    def _limit(self, n: int, need: int, others: list[Node], budget: int, owner: bytes) -> None:
        room = "half of the budget for checkpoints"
        if self.n_parties > 1:  # no texts of theirs are shared, so all together have at most the half
            others = [each for each in others if each.root.owner[:PARTY_BYTES] == owner[:PARTY_BYTES]]
            room = f"of {room}, the share of one of {self.n_parties} keys"
        held, most = self.nbytes(others), budget // SHARE // self.n_parties
        if held + need > most:
            raise UsageError(
                f"{n} tokens to keep need {size_text(need)}, {size_text(held)} are kept, and {size_text(most)} may be: "
                f"{room}. Give up something that is kept."
            )


def _points(node: Node) -> list[Checkpoint]:
    points = sorted((c for part in node.path() for c in part.checkpoints.values()), key=lambda c: c.position)
    return ([c for c in points if c.boundary] or points)[-POINTS:]


def _is_earlier(pinned: Node, node: Node) -> bool:
    """Whether a pinned text is what the one that ends in `node` goes on from, or another answer to its beginning.

    A template may write an answer in another way than it was drawn: what has the whole prompt in common is enough. Not
    what other texts go on from as well, which somebody may have pinned for all of them.
    """
    above = node.path()
    if pinned in above:
        return all(len(part.children) == 1 for part in above[above.index(pinned) : -1])
    shared = set(map(id, above))
    return max((part.end for part in pinned.path() if id(part) in shared), default=0) >= pinned.pinned


def _pages(nodes: Iterable[Node]) -> set[int]:
    return {page for node in nodes for part in node.path() for page in part.pages}


def text_bytes(node: Node, memory: HybridMemory) -> int:
    """Bytes of a node's keys, values, states and logits; a page at its edge counts here and beside."""
    points = node.checkpoints.values()
    size = sum(c.parked.nbytes if c.parked is not None else memory.bytes_state_per_seq for c in points)
    logits = sum(c.logits.nbytes for c in points if c.logits is not None)
    return len(node.pages) * memory.attention.bytes_per_page + size * memory.is_recurrent + logits
