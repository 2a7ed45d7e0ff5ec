"""Which prompts go to a worker together: those that begin alike, so that their beginning is read once.

Of the radix tree over all prompts' tokens the largest branches whose work is at most a share are groups: what is in
one meets on one worker, what is above it every worker reads for itself. A share is small beside what a worker does in
all, so that at the end none has much more left than others; what is still unfair then is divided (`schedule`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from ...memory.prefix_tree import common_beginning

WORTH_SHARING = 16  # tokens in common that are worth meeting for
SHARES = 2  # of the work, per worker; a group is at most one
MOST_PARTS = 8  # positions above a group at which checkpoints are left
DRAWN = 8.0  # what a drawn token costs, in tokens of a prompt
LONGEST = 0.25  # of a worker's part of the work: what is longer goes first

Tokens = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Group:
    """Prompts that begin alike.

    members  indices of the prompts, in their order
    shared   tokens that all of them begin with; 0: a prompt that is alone
    work     of all of them, the shared beginning read once, in tokens of a prompt
    parts    of each member: after how many tokens others part from it, in rising order. A worker with one slot sees no
             other prompt while it reads one, and would keep no state there
    """

    members: tuple[int, ...]
    shared: int
    work: float
    parts: tuple[tuple[int, ...], ...] = field(compare=False)

    @property
    def reading(self) -> float:
        """What reading the shared beginning takes, in answers of the group."""
        return self.shared / max(self._own, 1.0)

    def part(self, first: int, end: int | None = None) -> "Group":
        """Some of its members, which begin as all do."""
        members = self.members[first:end]
        return replace(self, members=members, parts=self.parts[first:end], work=self.shared + len(members) * self._own)

    @property
    def _own(self) -> float:
        return (self.work - self.shared) / len(self.members)


def plan(prompts: Sequence[Sequence[int]], n_drawn: int, n_workers: int) -> list[Group]:
    """Groups in the order in which they should begin: that of the file, so that answers can be written as they come,
    but those first that would take long at the end.

    prompts: tokens of each; n_drawn: tokens of an answer, at most
    """
    tokens = [np.asarray(ids, np.int64) for ids in prompts]
    order = sorted(range(len(tokens)), key=lambda i: (tokens[i].astype(">i8").tobytes(), i))
    common = [common_beginning(tokens[a], tokens[b]) for a, b in pairwise(order)]
    drawn = DRAWN * max(0, n_drawn)
    total = sum(len(ids) + drawn for ids in tokens) - sum(common)  # every edge of the tree read once
    most = total / max(1, n_workers * SHARES)
    groups = list(_groups(tokens, order, common, drawn, most))
    long = LONGEST * total / max(1, n_workers)
    return sorted(groups, key=lambda g: (0, -g.work, g.members) if g.work > long else (1, 0.0, g.members))


def _groups(tokens: list[Tokens], order: list[int], common: list[int], drawn: float, most: float) -> Iterator[Group]:
    """common: tokens in common of neighbours in `order`."""
    own = [len(tokens[i]) + drawn for i in order]
    before = np.concatenate([[0.0], np.cumsum(own)])
    # branches too large for one worker: after how many tokens they and those around them begin to branch, and who is in
    # none of their groups (places in order)
    large: list[tuple[tuple[int, ...], list[int]]] = [((0,), [])]
    nearest = _nearest(order, common)
    branches = [(0, len(order), 0)] if order else []  # first, behind the last, number of the large one it is in
    while branches:
        first, end, around = branches.pop()
        if end - first == 1:
            large[around][1].append(first)
            continue
        shared = min(common[first : end - 1])
        above = large[around][0]
        if shared - above[-1] >= WORTH_SHARING:
            work = float(before[end] - before[first]) - shared * (end - first - 1)
            if work <= most:
                yield _group(order[first:end], shared, work, nearest, above)
                continue
            around = len(large)
            large.append(((*above[: MOST_PARTS - 1], shared), []))
        cuts = [i + 1 for i in range(first, end - 1) if common[i] == shared]
        branches += [(a, b, around) for a, b in pairwise([first, *cuts, end])]
    for above, places in large:
        yield from _runs(sorted((order[i], own[i]) for i in places), above, most, nearest)


def _nearest(order: list[int], common: list[int]) -> dict[int, set[int]]:
    """Of each prompt: the tokens in common with those that are most like it."""
    beside = [0, *common, 0]
    return {i: {beside[place], beside[place + 1]} for place, i in enumerate(order)}


def _group(members: list[int], shared: int, work: float, nearest: dict[int, set[int]], above: tuple[int, ...]) -> Group:
    """above: after how many tokens other groups part from them."""
    rising = sorted(members)
    parts = (sorted(n for n in nearest[i] | {shared, *above} if n >= WORTH_SHARING) for i in rising)
    return Group(tuple(rising), shared, work, tuple(map(tuple, parts)))


def _runs(
    members: list[tuple[int, float]], above: tuple[int, ...], most: float, nearest: dict[int, set[int]]
) -> Iterator[Group]:
    """Those that are left of a large branch, in runs of `most` work; one by one where they have nothing in common.

    members: index and work of each
    """
    shared = above[-1]
    run: list[int] = []
    work = 0.0
    for i, (member, own) in enumerate(members):
        work += own - (shared if run else 0)
        run.append(member)
        if not shared or work >= most or i == len(members) - 1:
            yield _group(run, shared if len(run) > 1 else 0, work, nearest, above)
            run, work = [], 0.0
