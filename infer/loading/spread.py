"""Pages of a model's files that are in memory already, dealt out to the nodes of a NUMA machine.

What is read from the disk follows the policy of the thread that reads it (quant/ggml/numa.py). What an earlier program
has read lies where that one ran, often all on one node. mbind(2) does not move it: to the kernel a page on any of the
nodes conforms. So pages are moved one by one, of each block the ones that one node has too many of.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from mmap import PAGESIZE

import numpy as np

from hybrid.quant.ggml import numa
from hybrid.quant.ggml.byte_sizes import size_text
from hybrid.quant.ggml.cpus import as_list
from hybrid.quant.ggml.reader import GGUFFile

from .page_cache import is_held, tells

BLOCK = 4 << 20  # bytes, from the start of the file: no large page of 2 MiB lies in two, which would be moved twice
WORTH = 1 << 20  # of a block so many bytes may be on the wrong node
SAMPLE = 17  # of so many pages one is looked at first; odd: every second page of what is interleaved is on one node
UNEVEN = 1.25  # times its share: what one node may have of all without a word


@dataclass(eq=False)
class Spread:
    """What `spread` found and did. held: pages of each node, as they lie now, of some blocks by a sample of them."""

    nodes: tuple[int, ...]
    held: np.ndarray
    moved: int = 0
    """Bytes."""
    refused: str = ""
    """Why the system moves nothing; mostly empty."""

    @property
    def fullest(self) -> tuple[int, float]:
        """The node with the most pages, and its part of all."""
        node = int(self.held.argmax())
        return node, float(self.held[node] / max(1, self.held.sum()))

    def note(self, name: str) -> str:
        """One line for the user: what is spread, and what is not and why."""
        line = f"numa: memory is spread over nodes {as_list(self.nodes)}"
        if self.moved:
            line += f"; {size_text(self.moved)} of {name}, in memory already, moved"
        node, part = self.fullest
        if part > UNEVEN / len(self.nodes) and self.held.sum() * PAGESIZE > BLOCK:
            why = self.refused or "it is mapped twice, as by another program, or there is no room on other nodes"
            return (
                f"{line}; {part:.0%} of what is in memory of {name} stays on node {node}: {why}. End what uses the "
                "file, have the system forget it (`dd if=FILE iflag=nocache count=0`), and load again."
            )
        if self.refused and not self.held.any():
            line += (
                f"; what is in memory of {name} stays where it is: {self.refused}. A copy made under "
                "numactl, interleaved, is spread"
            )
        return line + "."

    def _count(self, homes: np.ndarray, n_pages: int) -> None:
        """homes: of the pages of a block, or of a sample of them."""
        count = np.bincount(homes[homes >= 0]) * (n_pages / len(homes))
        self.held = np.pad(self.held, (0, max(0, len(count) - len(self.held))))
        self.held[: len(count)] += count

    def spread_block(self, mapped: np.ndarray) -> None:
        """mapped: a block of a file that is in memory. OSError: the system has no such call, or does not let us."""
        block = numa.pages(mapped.ctypes.data, len(mapped))
        mapped[:: SAMPLE * PAGESIZE].max()  # a page has a home once this process has touched it
        sample = numa.homes(block[::SAMPLE])
        if (destinations(sample, self.nodes, self.held / SAMPLE, WORTH // PAGESIZE // SAMPLE) < 0).all():
            self._count(sample, len(block))
            return
        mapped[::PAGESIZE].max()
        before = homes = numa.homes(block)
        to = destinations(homes, self.nodes, self.held, WORTH // PAGESIZE)
        away = to >= 0
        if away.any() and not self.refused:
            try:
                numa.move(block[away], to[away])
                homes = numa.homes(block)
            except OSError as error:
                self.refused = _cannot(error)
        self.moved += int((homes != before).sum()) * PAGESIZE
        self._count(homes, len(block))


def spread(gguf: GGUFFile, nodes: Sequence[int]) -> Spread:
    """Moves pages of its files that are in memory until each node has as many. Nothing is read from the disk."""
    found = Spread(tuple(nodes), np.zeros(max(nodes) + 1))
    for part in gguf.parts:
        try:
            with part.path.open("rb", buffering=0) as file:
                if not tells(file.fileno()):
                    found.refused = "its file system does not say what that is"
                    continue
                for start in range(0, part.nbytes, BLOCK):
                    stop = min(start + BLOCK, part.nbytes)
                    if is_held(file.fileno(), start) and is_held(file.fileno(), stop - 1):
                        found.spread_block(part.mapped[start:stop])
        except OSError as error:
            found.refused = _cannot(error)
    return found


def _cannot(error: OSError) -> str:
    return f"the system does not move it ({error.strerror})"


def destinations(homes: np.ndarray, nodes: Sequence[int], held: np.ndarray, few: int) -> np.ndarray:
    """Of each page of a block the node that it should be moved to, -1: it stays. So `nodes` have as many, together with
    the pages before it, of which node i has held[i]. few: pages that are not worth it.

    Pages next to each other go to the same node, so that a large page is not torn between them: threads read from all
    parts of a matrix at once.
    """
    where = np.asarray(nodes)
    present = np.flatnonzero(homes >= 0)
    before = held[where]
    wanted = np.maximum(0, (before.sum() + len(present)) / len(where) - before)
    ends = np.rint(np.cumsum(wanted) * (len(present) / max(1, wanted.sum()))).astype(np.int64)
    room = dict(zip(nodes, np.diff(ends, prepend=0).tolist(), strict=True))
    to = np.full(len(homes), -1, np.int32)
    excess: list[int] = []
    for node in np.unique(homes[present]).tolist():
        here = present[homes[present] == node]
        stay = min(len(here), room.get(node, 0))
        excess += here[stay:].tolist()
        if node in room:
            room[node] -= stay
    foreign = ~np.isin(homes[present], where)
    if len(excess) > few or foreign.any():
        to[sorted(excess)] = np.repeat(where, [room[node] for node in nodes])
    return to
