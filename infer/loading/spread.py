"""Pages of a model's files that are in memory already, dealt out to the nodes of a NUMA machine.

What is read from the disk follows the policy of the thread that reads it (quant/ggml/numa.py). What an earlier program
has read lies where that one ran, often all on one node. mbind(2) does not move it: to the kernel a page on any of the
nodes conforms. So pages are moved one by one, of each block the ones that one node has too many of.
"""

import contextlib
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
WORTH = 4  # a block is left alone when less than this part of its pages (1/4) is on the wrong node
UNEVEN = 1.25  # times its share: what one node may have of all without a word


@dataclass
class Spread:
    """What `spread` found and did. held: pages of each node, as they lie now."""

    nodes: tuple[int, ...]
    held: np.ndarray
    moved: int = 0
    """Bytes."""
    refused: str = ""
    """Why the system moves nothing; mostly empty."""
    untold: bool = False
    """Of a file it does not say what is in memory, so that stays where it is."""

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
        if self.untold:
            line += (
                f"; what is in memory of {name} stays where it is, for its file system does not say. A copy is spread "
                "that was made with `numactl --interleave=all cp`"
            )
        node, part = self.fullest
        if part <= UNEVEN / len(self.nodes):
            return line + "."
        why = self.refused or "it is mapped twice, as by another program, or there is no room on other nodes"
        return (
            f"{line}; {part:.0%} of what is in memory of {name} stays on node {node}: {why}. End what uses the file, "
            "have the system forget it (`dd if=FILE iflag=nocache count=0`), and load again."
        )


def spread(gguf: GGUFFile, nodes: Sequence[int]) -> Spread:
    """Moves pages of its files that are in memory until each node has as many. Nothing is read from the disk."""
    found = Spread(tuple(nodes), np.zeros(max(nodes) + 1, np.int64))
    for part in gguf.parts:
        with contextlib.suppress(OSError), part.path.open("rb", buffering=0) as file:
            if not tells(file.fileno()):
                found.untold = True
                continue
            for start in range(0, part.nbytes, BLOCK):
                stop = min(start + BLOCK, part.nbytes)
                if is_held(file.fileno(), start) and is_held(file.fileno(), stop - 1):
                    part.mapped[start:stop:PAGESIZE].max()  # pages have a home once this process has touched them
                    _spread_block(found, numa.pages(part.mapped.ctypes.data + start, stop - start))
    return found


def _spread_block(found: Spread, block: np.ndarray) -> None:
    try:
        homes = numa.homes(block)
        to = destinations(homes, found.nodes, found.held)
        away = to >= 0
        if away.any() and not found.refused:
            numa.move(block[away], to[away])
            before, homes = homes, numa.homes(block)
            found.moved += int((homes != before).sum()) * PAGESIZE
    except OSError as error:
        found.refused = f"the system does not move it ({error.strerror})"
        return
    count = np.bincount(homes[homes >= 0], minlength=len(found.held))
    if len(count) > len(found.held):
        found.held = np.pad(found.held, (0, len(count) - len(found.held)))
    found.held += count


def destinations(homes: np.ndarray, nodes: Sequence[int], held: np.ndarray) -> np.ndarray:
    """Of each page of a block the node that it should be moved to, -1: it stays. So `nodes` have as many, together with
    the pages before it, of which node i has held[i].

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
    if len(excess) * WORTH > len(present) or foreign.any():
        to[sorted(excess)] = np.repeat(where, [room[node] for node in nodes])
    return to
