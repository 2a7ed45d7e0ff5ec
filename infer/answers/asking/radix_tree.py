"""A radix tree of texts, or of token sequences: common prefixes are stored once."""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from sys import getsizeof
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from array import array

Run = TypeVar("Run", str, "array[int]", "list[int]")
NODE_BYTES = 400  # of a node beside its run, with its entry in the parent's children


@dataclass(eq=False)
class Node(Generic[Run]):
    """A prefix. run: its part after the parent's prefix. n_owners: see RadixTree.add."""

    parent: "Node[Run] | None"
    run: Run
    children: "dict[Hashable, Node[Run]]" = field(default_factory=dict)
    n_owners: int = 0

    def whole(self) -> Run:
        """The prefix, from the root to here."""
        runs, node = [self.run], self
        while node.parent is not None:
            node = node.parent
            runs.append(node.run)
        whole = runs.pop()  # the root's, which is empty
        if isinstance(whole, str):
            return whole.join(reversed(runs))
        whole = whole[:]
        for run in reversed(runs):
            whole += run
        return whole


class RadixTree(Generic[Run]):
    """nbytes: size of the contents. A node stays the same object while it has an owner."""

    def __init__(self, empty: Run) -> None:
        self.root: Node[Run] = Node(None, empty)
        self.nbytes = 0

    def __iter__(self) -> "Iterator[Node[Run]]":
        """All nodes but the root, parents first."""
        waiting = list(self.root.children.values())
        while waiting:
            node = waiting.pop()
            yield node
            waiting += node.children.values()

    def path(self, run: Run) -> "Iterator[tuple[Node[Run], int]]":
        """The nodes on the way of `run`, and the lengths of their prefixes."""
        node, n = self.root, 0
        yield node, n
        while n < len(run) and (child := node.children.get(run[n])) is not None:
            end = n + len(child.run)
            if run[n:end] != child.run:
                return
            node, n = child, end
            yield node, n

    def add(self, run: Run, below: "Node[Run] | None" = None) -> "Node[Run]":
        """The node of `run` below `below` (the root), with one more owner."""
        node, n = below or self.root, 0
        while n < len(run):
            child = node.children.get(run[n])
            if child is None:
                child = Node(node, run[n:])
                node.children[run[n]] = child
                self._count(child, 1)
            same = common_length(child.run, run[n : n + len(child.run)])
            node, n = (child if same == len(child.run) else self._split(child, same)), n + same
        node.n_owners += 1
        return node

    def drop(self, node: "Node[Run]") -> None:
        """Removes one owner, and the nodes that nobody needs then."""
        node.n_owners -= 1
        if not node.n_owners and not node.children and node.parent is not None:
            self._count(node, -1)
            del node.parent.children[node.run[0]]
            node = node.parent
        if not node.n_owners and len(node.children) == 1 and node.parent is not None:
            (child,) = node.children.values()
            self._count(node, -1)
            self._count(child, -1)
            child.parent, child.run = node.parent, node.run + child.run
            self._count(child, 1)
            node.parent.children[child.run[0]] = child

    def _split(self, node: "Node[Run]", n: int) -> "Node[Run]":
        """Splits a node's run after n; returns the upper part, a new node."""
        assert node.parent is not None and 0 < n < len(node.run)
        self._count(node, -1)
        upper = Node(node.parent, node.run[:n])
        node.parent.children[upper.run[0]] = upper
        node.parent, node.run = upper, node.run[n:]
        upper.children[node.run[0]] = node
        self._count(node, 1)
        self._count(upper, 1)
        return upper

    def _count(self, node: "Node[Run]", sign: int) -> None:
        self.nbytes += sign * (NODE_BYTES + getsizeof(node.run))


def common_length(a: Run, b: Run) -> int:
    """Length of the common prefix."""
    low, high = 0, min(len(a), len(b))
    if a[:high] == b[:high]:
        return high
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
