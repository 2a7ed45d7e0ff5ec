"""Spreads pages of a model's files that are in memory already over the nodes of a NUMA machine.

Pages read from the disk follow the policy of the thread that reads them (quant/ggml/numa.py). Pages that an earlier
program has read are where it ran, often all on one node. mbind(2) does not move them: for the kernel a page on any of
the nodes conforms. So pages are moved one by one, in each block from nodes that have too many.
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

BLOCK = 4 << 20  # bytes, aligned in the file: no large page of 2 MiB is in two blocks, which would move it twice
WORTH = 1 << 20  # bytes of a block that may be on the wrong node before pages are moved
SAMPLE = 17  # first, one of 17 pages is examined; odd, because interleaved pages alternate between nodes
UNEVEN = 1.25  # times its share: one node may have this much of all pages without a message


@dataclass(eq=False)
class Spread:
    """The result of `spread`. held: pages on each node now; for some blocks, estimated by a sample."""

    nodes: tuple[int, ...]
    held: np.ndarray
    moved: int = 0
    """Bytes."""
    refused: str = ""
    """Why the system moves nothing; mostly empty."""

    @property
    def fullest(self) -> tuple[int, float]:
        """The node with the most pages, and its share of all."""
        node = int(self.held.argmax())
        return node, float(self.held[node] / max(1, self.held.sum()))

    def note(self, name: str) -> str:
        """One line for the user: the memory that was spread, and why the rest was not. name: of the file."""
        line = f"numa: memory is spread over nodes {as_list(self.nodes)}"
        if self.moved:
            line += f"; {size_text(self.moved)} of {name}, in memory already, moved"
        node, part = self.fullest
        if part > UNEVEN / len(self.nodes) and self.held.sum() * PAGESIZE > BLOCK:
            why = self.refused or "it is mapped twice, as by another program, or there is no room on other nodes"
            return (
                f"{line}; {part:.0%} of the cached part of {name} stays on node {node}: {why}. End programs that use "
                "the file, drop it from the cache (`dd if=FILE iflag=nocache count=0`), and load again."
            )
        if self.refused and not self.held.any():
            line += (
                f"; the cached part of {name} stays where it is: {self.refused}. A copy made under "
                "numactl, interleaved, is spread"
            )
        return line + "."

    def _count(self, homes: np.ndarray, n_pages: int) -> None:
        """Add a block's pages to `held`. homes: nodes of all its pages, or of a sample."""
        count = np.bincount(homes[homes >= 0]) * (n_pages / len(homes))
        self.held = np.pad(self.held, (0, max(0, len(count) - len(self.held))))
        self.held[: len(count)] += count

    def spread_block(self, mapped: np.ndarray) -> None:
        """Spreads a block of a file over the NUMA nodes. mapped: the block, which is in memory. Raises OSError if the
        system
        does not tell where its pages are.
        """
        block = numa.pages(mapped.ctypes.data, len(mapped))
        mapped[:: SAMPLE * PAGESIZE].max()  # the node of a page is known once this process has touched it
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
    """Move the pages of a model's files that are in memory, until each node has the same number. Reads nothing from the
    disk."""
    found = Spread(tuple(nodes), np.zeros(max(nodes) + 1))
    for part in gguf.parts:
        try:
            with part.path.open("rb", buffering=0) as file:
                if not tells(file.fileno()):
                    found.refused = "its file system does not say which pages are cached"
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
    """For each page of a block, the node to move it to; -1: it stays.

    Then all `nodes` have the same number of pages, counting earlier blocks (held[i] on node i). At most `few` misplaced
    pages are left where they are. Adjacent pages go to the same node, so that no large page is torn; this costs
    nothing, since threads read from all parts of a matrix at once.
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
