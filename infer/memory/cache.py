"""Prompt cache: earlier texts in memory, found by their tokens, so that no prompt is processed twice.

Texts are kept in a radix tree with their keys and values; checkpoints hold the recurrent state at some positions. For a
new text `find` returns the last known position from which the model can continue. Known tokens after it are processed
again: at most LADDER, since a sequence leaves a checkpoint at every multiple of it.

The budget in bytes excludes memory that sequences also own. The checkpoint of the lowest worth goes first: the number
of tokens to process again without it, higher for a boundary (the end of a prompt or an answer, where people go back
to), lower the longer it was not used. Texts without a checkpoint go with it. Where an eighth of all states would not be
enough, as after going back far in a long text, the least recently used text is shortened instead. Models without
recurrent layers need no checkpoints: they lose the least recently used text. Pinned texts stay (pins.py). given_up.py
remembers losses, so that a user who sends the text again can be told why it is processed again.

Only its owner finds a text (prefix_tree.py); all owners share the budget.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import numpy as np

from ..kernels.attention.kv import PAGE, pages_of
from .given_up import GivenUp
from .hybrid import HybridMemory
from .parking import ParkedType, park, unpark
from .picture_tokens import outside
from .pins import Pins
from .prefix_tree import Checkpoint, Node, PrefixTree, Tokens

LADDER = 512  # positions between checkpoints that every sequence leaves
FEW_STATES = 8  # beyond 1 / FEW_STATES of all states, texts are shortened instead of giving up states
BOUNDARY_WORTH = 16  # factor of the worth of a checkpoint at a boundary


@dataclass(frozen=True)
class KnownText:
    """A known prefix: the first `position` tokens of the text that ends in `node`, and the checkpoint there, if any."""

    node: Node
    position: int
    checkpoint: Checkpoint | None


class PromptCache:
    """Texts and checkpoints that outlive the sequences of `memory`, in at most `budget` bytes.

    kind: the format of kept states. Only f32 gives the same bits as a text that was processed without a break.
    """

    def __init__(self, memory: HybridMemory, budget: int, kind: ParkedType = "f32") -> None:
        self.memory, self.budget, self.kind = memory, budget, kind
        self.tree = PrefixTree(memory.attention.pool)
        self.pins, self.given_up = Pins(memory, self.tree), GivenUp()
        self._clock = 0
        self._loose = 0  # bytes of logits and parked states
        memory.attention.pool.refill, memory.recurrent.pool.refill = self._give_up_page, self._give_up_one

    @property
    def clock(self) -> int:
        """A counter that grows whenever something is kept or used."""
        return self._clock

    # --- size ---
    @property
    def n_checkpoints(self) -> int:
        return sum(len(node.checkpoints) for node in self.tree)

    @property
    def n_tokens(self) -> int:
        """Number of known tokens; a common prefix of several texts counts once."""
        return sum(len(node.tokens) for node in self.tree)

    @property
    def nbytes(self) -> int:
        """Bytes that only this cache owns: states, logits, pages."""
        return sum(self.sizes())

    def sizes(self) -> tuple[int, int]:
        """Bytes that only this cache owns: (states and logits, keys and values)."""
        memory = self.memory
        states = memory.recurrent.pool.alone * memory.bytes_state_per_seq
        return states + self._loose, memory.attention.pool.alone * memory.attention.bytes_per_page

    # --- use ---
    def keep(
        self, seq: int, ids: Sequence[int], *, boundary: bool, logits: np.ndarray | None = None, owner: bytes = b""
    ) -> Checkpoint:
        """Keep a checkpoint, keys and values of a sequence whose memory has seen exactly `ids`."""
        assert len(ids) == self.memory.n_past[seq] > 0
        assert not self.memory.is_moved(seq), "tokens were moved: this is not the memory of their text"
        memory = self.memory
        pages, row = memory.hold(seq)
        node = self.tree.insert(np.asarray(ids, np.int32), pages, owner)
        self._clock += 1
        self._touch(node)
        point = node.checkpoints.get(len(ids))
        if point is None:
            point = node.checkpoints[len(ids)] = Checkpoint(len(ids), -1, boundary)
            if memory.is_recurrent and self.kind == "f32":
                point.row = memory.recurrent.pool.hold(row)
            elif memory.is_recurrent:
                point.parked = park(memory.recurrent.state(row), self.kind)
                self._loose += point.parked.nbytes
        point.used, point.boundary = self._clock, point.boundary or boundary
        if logits is not None and point.logits is None:
            point.logits = logits.copy()
            self._loose += point.logits.nbytes
        self.trim()
        return point

    def place(self, node: Node, point: Checkpoint) -> None:
        """Add a checkpoint made elsewhere to a node that has none at its position. Takes over its row."""
        assert node.start < point.position <= node.end and point.position not in node.checkpoints
        self._clock += 1
        self._touch(node)
        point.used = self._clock
        node.checkpoints[point.position] = point
        self._loose += _loose(point)
        if point.row >= 0:
            self.memory.recurrent.pool.claim(point.row)

    def trim(self) -> None:
        """Give up checkpoints and texts until the cache fits its budget."""
        while self.nbytes > self.budget and self._give_up_one():
            pass

    def find(self, ids: Sequence[int] | Tokens, owner: bytes = b"", *, logits: bool = True) -> KnownText | None:
        """The last position from which `ids` can continue: logits are known, or a token remains to compute them.

        logits=False: the end of `ids` also counts without logits.
        """
        node, n = self.tree.match(np.asarray(ids, np.int32), owner)
        for part in reversed(node.path()):
            points = (c for c in part.checkpoints.values() if c.position <= n)
            usable = (c for c in points if c.position < len(ids) or c.logits is not None or not logits)
            best = max(usable, key=lambda c: c.position, default=None)
            if best and (self.memory.is_recurrent or best.position == len(ids)):
                return KnownText(part, best.position, best)
        # without recurrent layers a text can be cut anywhere
        at = 0 if self.memory.is_recurrent else min(n, len(ids) - logits)
        at = outside(ids, at) if self.memory.is_together else at
        return KnownText(node, at, None) if at > 0 else None

    def restore(self, seq: int, known: KnownText) -> None:
        """Set the sequence to the known prefix."""
        pages = self.tree.pages(known.node, known.position)
        row = self.row_of(known.checkpoint) if known.checkpoint and self.memory.is_recurrent else -1
        text = self.tree.text(known.node, known.position).astype(np.int64) if self.memory.has_axes else None
        self.memory.adopt(seq, known.position, pages, row, text)
        if row >= 0:
            self.memory.recurrent.pool.drop(row)
        self._clock += 1
        self._touch(known.node)
        if known.checkpoint:
            known.checkpoint.used = self._clock

    def row_of(self, point: Checkpoint) -> int:
        """A row with the state of a checkpoint; the caller becomes an owner of the row."""
        recurrent = self.memory.recurrent
        if point.parked is None:
            return recurrent.pool.share(point.row)
        row = recurrent.pool.take()
        unpark(point.parked, recurrent.state(row))
        return row

    def clear(self) -> None:
        """Forget everything, pinned texts included."""
        self.pins.clear()
        while self._give_up_one():
            pass
        self.given_up.clear()

    def forget(self, node: Node) -> None:
        """Forget this node and all below it, pinned or not, and ancestors that lead nowhere else."""
        below = [node]
        for one in below:
            below += one.children.values()
        for one in reversed(below):
            for point in list(one.checkpoints.values()):
                self._drop(one, point)
            one.pinned = 0
            self.tree.remove(one)
        if self.memory.is_recurrent:
            self._remove_bare(node.parent)

    def forget_all(self) -> None:
        """Forget everything without giving pages and rows back: after a fault (recount.py)."""
        self.pins.clear()
        self.tree.clear()

    def weigh(self) -> None:
        """Recount the bytes that no pool counts."""
        self._loose = sum(_loose(point) for node in self.tree for point in node.checkpoints.values())

    def _touch(self, node: Node) -> None:
        seconds = time.monotonic()
        for part in node.path():
            part.used, part.seconds = self._clock, seconds

    # --- giving up ---
    def _give_up_one(self) -> bool:
        """Give up the checkpoint or text of the lowest worth, or shorten a text. False when nothing is left."""
        states, texts = self.sizes()
        if states + texts - self.budget > states // FEW_STATES and self._shorten():
            return True
        if self.memory.is_recurrent and (least := self._least()) is not None:
            node, point = least
            self.given_up.add(self.tree.text(node, point.position), owner=node.root.owner)
            self._drop(node, point)
            self._remove_bare(node)
            return True
        leaves = [node for node in self.tree if not node.children and not node.pinned]
        if not leaves:
            return False
        leaf = min(leaves, key=lambda node: node.used)
        self.given_up.add(self.tree.text(leaf, leaf.end), leaf.start, leaf.root.owner)
        for point in list(leaf.checkpoints.values()):
            self._drop(leaf, point)
        self.tree.remove(leaf)
        return True

    def _give_up_page(self) -> bool:
        """Make room for keys and values, which giving up only a checkpoint would not."""
        return self._shorten() or self._give_up_one()

    def _shorten(self) -> bool:
        """End the least recently used text of a recurrent model one checkpoint earlier. False: none can be shortened.

        Pinned texts and checkpoints stay, and texts whose end would free no page.
        """
        if not self.memory.is_recurrent:
            return False
        pinned = self.pins.held()
        ends = (
            (node, place)
            for node in self.tree
            if not node.children and not node.pinned and (place := self._shorter(node)) is not None
            if not any(id(point) in pinned for p, point in node.checkpoints.items() if p > place)
        )
        leaf, place = min(ends, key=lambda end: end[0].used, default=(None, 0))
        if leaf is None:
            return False
        for position in [p for p in leaf.checkpoints if p > place]:
            self.given_up.add(self.tree.text(leaf, position), owner=leaf.root.owner)
            self._drop(leaf, leaf.checkpoints[position])
        if place > leaf.start:
            self.tree.shorten(leaf, place)
        else:
            self._remove_bare(leaf)
        return True

    def _shorter(self, leaf: Node) -> int | None:
        """The position at which a leaf may end instead (possibly its start); None if that would free no page."""
        pages, first = leaf.pages, leaf.start // PAGE
        *before, place = [leaf.start, *sorted(leaf.checkpoints)]
        going = pages[pages_of(place) - first :]  # after the last state: no text can continue from there
        if not going:
            place = before[-1] if before else place
            going = pages[place // PAGE - first :]
        return place if any(map(self.memory.attention.pool.is_alone, going)) else None

    def _remove_bare(self, node: Node | None) -> None:
        """Remove a node without children, checkpoints or pin, and then its ancestors in the same way."""
        while node is not None and node.parent is not None and not (node.children or node.checkpoints or node.pinned):
            self.tree.remove(node)
            node = node.parent

    def worth(self, node: Node, point: Checkpoint) -> float:
        """The cost of giving up a checkpoint: see the module's docstring."""
        before = (p for part in node.path() for p in part.checkpoints if p < point.position)
        return self._worth(point, max(before, default=0))

    def _worth(self, point: Checkpoint, before: int) -> float:
        """`worth`, where `before` is the position of the previous checkpoint."""
        saved = point.position - before
        return saved * (BOUNDARY_WORTH if point.boundary else 1) / (1 + self._clock - point.used)

    def _least(self) -> tuple[Node, Checkpoint] | None:
        """The checkpoint of the lowest worth and its node, in one walk; None if all are pinned."""
        pinned = self.pins.held()
        least, found = inf, None
        waiting = [(node, 0) for root in self.tree.roots.values() for node in root.children.values()]
        while waiting:
            node, before = waiting.pop()
            points = node.checkpoints
            for position in sorted(points) if len(points) > 1 else points:
                point = points[position]
                worth = self._worth(point, before)
                if worth < least and id(point) not in pinned:
                    least, found = worth, (node, point)
                before = position
            waiting += [(child, before) for child in node.children.values()]
        return found

    def _drop(self, node: Node, point: Checkpoint) -> None:
        del node.checkpoints[point.position]
        self._loose -= _loose(point)
        if point.row >= 0:
            self.memory.recurrent.pool.let_go(point.row)


def _loose(point: Checkpoint) -> int:
    """Bytes of a checkpoint that no pool counts."""
    return sum(part.nbytes for part in (point.logits, point.parked) if part is not None)
