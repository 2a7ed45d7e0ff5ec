"""A radix tree over tokens: the known prefixes of texts, and where their keys, values and states are.

An edge holds a run of tokens, the pages with their keys and values, and checkpoints at some of its positions. Where two
texts diverge, an edge is split; both parts then own the page in which the split lies. The page of a deeper node also
holds the positions of its ancestors that share the page, so each page of a text comes from the deepest node that has
it.

Texts belong to owners, each with its own root: only its owner finds a text. An owner is a few bytes that the caller
chooses; b"" is the anonymous owner.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count

import numpy as np
import numpy.typing as npt

from ..kernels.attention.kv import PAGE, pages_of
from .parking import Parked
from .pool import IndexPool

Tokens = npt.NDArray[np.int32]


@dataclass(eq=False)
class Checkpoint:
    """The state of the recurrent layers after the first `position` tokens of a text."""

    position: int
    row: int  # in the recurrent memory; -1: no recurrent layers, or the state is parked
    boundary: bool  # the end of a prompt or an answer, not a checkpoint at a multiple of LADDER
    logits: np.ndarray | None = None  # f32 [n_vocab] after the last token, if known
    used: int = 0  # the cache clock when it was made or last restored
    parked: Parked | None = None


@dataclass(eq=False)
class Node:
    """Tokens start .. start + len(tokens) of every text below; the first of `pages` holds `start`.

    name     number of the text that ends here; the name moves on when that text gets longer
    pinned   tokens of the prompt that the pinned text answers, 0: not pinned. The cache gives up neither a pinned node
             nor its ancestors (pins.py)
    seconds  time.monotonic() of the last use
    owner    in a root: whose texts begin there
    """

    parent: "Node | None"
    start: int
    tokens: Tokens
    pages: list[int] = field(default_factory=list)
    children: dict[int, "Node"] = field(default_factory=dict)
    checkpoints: dict[int, Checkpoint] = field(default_factory=dict)
    used: int = 0
    name: int = 0
    pinned: int = 0
    seconds: float = 0.0
    owner: bytes = b""

    @property
    def end(self) -> int:
        return self.start + len(self.tokens)

    def path(self) -> list["Node"]:
        """The nodes from just below the root to this one."""
        nodes, node = [], self
        while node.parent is not None:
            nodes.append(node)
            node = node.parent
        return nodes[::-1]

    @property
    def root(self) -> "Node":
        """The root of this node's owner."""
        node = self
        while node.parent is not None:
            node = node.parent
        return node


class PrefixTree:
    """Texts of all owners. `pool` counts the owners of pages; the tree is one of them for every node with the page."""

    def __init__(self, pool: IndexPool) -> None:
        self.pool = pool
        self._names = count(1)
        self.clear()

    def clear(self) -> None:
        """Forget all texts without giving their pages back."""
        self.roots: dict[bytes, Node] = {}  # only of owners that have texts

    def __iter__(self) -> Iterator[Node]:
        """All nodes but the roots, parents first."""
        return self._below(*self.roots.values())

    def nodes_of(self, owner: bytes) -> Iterator[Node]:
        """All nodes of one owner but its root, parents first."""
        return self._below(self._root(owner))

    def _root(self, owner: bytes) -> Node:
        """The root of an owner; a new one, not in the tree, if the owner has no texts."""
        root = self.roots.get(owner)
        return Node(None, 0, np.zeros(0, np.int32), owner=owner) if root is None else root

    @staticmethod
    def _below(*nodes: Node) -> Iterator[Node]:
        waiting = [child for node in nodes for child in node.children.values()]
        while waiting:
            node = waiting.pop()
            yield node
            waiting += node.children.values()

    def match(self, ids: Tokens, owner: bytes = b"") -> tuple[Node, int]:
        """The longest known prefix of `ids` among an owner's texts: the node in which it ends, and its length."""
        node, n = self._root(owner), 0
        while n < len(ids) and (child := node.children.get(int(ids[n]))) is not None:
            m = min(len(child.tokens), len(ids) - n)
            differ = np.flatnonzero(child.tokens[:m] != ids[n : n + m])
            node, n = child, n + (int(differ[0]) if len(differ) else m)
            if n < node.end:
                break
        return node, n

    def following(self, node: Node, n: int, most: int) -> Tokens:
        """Up to `most` tokens after the first n of a text through `node`; forks follow the last used child."""
        parts, left = [node.tokens[n - node.start :][:most]], most - (node.end - n)
        while left > 0 and node.children:
            node = max(node.children.values(), key=lambda child: child.used)
            parts.append(node.tokens[:left])
            left -= len(node.tokens)
        return np.concatenate(parts)

    def pages(self, node: Node, n: int) -> list[int]:
        """Pages of the first n positions of a text that ends in `node`."""
        pages: list[int] = []
        for part in node.path():
            pages[part.start // PAGE :] = part.pages
        return pages[: pages_of(n)]

    def text(self, node: Node, n: int) -> Tokens:
        """The first n tokens of a text that ends in `node`."""
        return np.concatenate([np.zeros(0, np.int32), *(part.tokens for part in node.path())])[:n]

    def insert(self, ids: Tokens, pages: list[int], owner: bytes = b"") -> Node:
        """The node that ends after `ids`; made, if missing, with its part of `pages`, the pages of the whole text."""
        node, n = self.match(ids, owner)
        if n < node.end:
            node = self.split(node, n)
        if n < len(ids):
            leaf = Node(node, n, ids[n:].copy(), [self.pool.hold(p) for p in pages[n // PAGE : pages_of(len(ids))]])
            leaf.name = next(self._names)
            if node.parent is None:
                self.roots[owner] = node
            if not node.children and node.parent is not None:  # the same text has grown
                leaf.name, node.name = node.name, leaf.name
            node.children[int(ids[n])] = node = leaf
        return node

    def split(self, node: Node, n: int) -> Node:
        """Cut the edge after n tokens of the text; returns the upper part."""
        assert node.parent is not None and node.start < n < node.end
        cut = n - node.start
        first = node.start // PAGE
        upper = Node(node.parent, node.start, node.tokens[:cut], used=node.used, seconds=node.seconds)
        upper.name = next(self._names)
        upper.pages = node.pages[: pages_of(n) - first] if node.pages else []
        upper.checkpoints = {p: c for p, c in node.checkpoints.items() if p <= n}
        upper.children[int(node.tokens[cut])] = node
        node.parent.children[int(upper.tokens[0])] = upper
        node.parent, node.start, node.tokens = upper, n, node.tokens[cut:]
        if node.pages:
            node.pages = node.pages[n // PAGE - first :]
            if n % PAGE:
                self.pool.hold(node.pages[0])
        node.checkpoints = {p: c for p, c in node.checkpoints.items() if p > n}
        return upper

    def shorten(self, leaf: Node, n: int) -> None:
        """Forget the tokens after the first n of a text that ends here; checkpoints there are gone already."""
        assert leaf.start < n and not leaf.children and all(p <= n for p in leaf.checkpoints)
        kept = pages_of(n) - leaf.start // PAGE
        for page in leaf.pages[kept:]:
            self.pool.let_go(page)
        del leaf.pages[kept:]
        leaf.tokens = leaf.tokens[: n - leaf.start]

    def remove(self, leaf: Node) -> None:
        """Forget a node without children; its checkpoints are gone already."""
        assert leaf.parent is not None and not leaf.children and not leaf.checkpoints
        for page in leaf.pages:
            self.pool.let_go(page)
        del leaf.parent.children[int(leaf.tokens[0])]
        if leaf.parent.parent is None and not leaf.parent.children:
            self.roots.pop(leaf.parent.owner, None)  # owners come and go: those without texts must not pile up


def common_beginning(a: Sequence[int] | np.ndarray, b: Sequence[int] | np.ndarray) -> int:
    """Length of the common prefix."""
    n = min(len(a), len(b))
    differ = np.flatnonzero(np.asarray(a[:n], np.int64) != np.asarray(b[:n], np.int64))
    return int(differ[0]) if len(differ) else n
