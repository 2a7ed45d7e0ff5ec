"""Divides the prompts of a file into groups for the workers: prompts with a common prefix go to one worker, which
reads that prefix once.

Groups are the largest branches of the radix tree over all prompts' tokens whose work is at most 1 / `SHARES` of a
worker's part. One worker reads the prefix of a group; every worker reads prefixes above the groups for itself.
Groups are small beside a worker's part, so all workers end at nearly the same time; the last groups are divided again
(`schedule`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from ...memory.prefix_tree import common_beginning

WORTH_SHARING = 16  # least length of a common prefix for a group
SHARES = 2  # a group has at most 1 / SHARES of a worker's part of the work
MOST_PARTS = 8  # limit on checkpoints in the prefixes above a group
DRAWN = 8.0  # cost of a sampled token, in tokens of a prompt
LONGEST = 0.25  # groups with more than this share of a worker's part begin first

Tokens = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Group:
    """Prompts with a common prefix.

    members  indices of the prompts, in their order
    shared   tokens of the common prefix; 0: a single prompt
    work     of all answers, in tokens of a prompt; the common prefix counts once
    parts    for each member: lengths of the prefixes after which other prompts differ, rising. The worker keeps
             checkpoints there: with one slot it sees no other prompt while it reads one
    """

    members: tuple[int, ...]
    shared: int
    work: float
    parts: tuple[tuple[int, ...], ...] = field(compare=False)

    @property
    def reading(self) -> float:
        """Cost of reading the common prefix, in answers of the group."""
        return self.shared / max(self._own, 1.0)

    def part(self, first: int, end: int | None = None) -> "Group":
        """A group of some of the members, with the same common prefix."""
        members = self.members[first:end]
        return replace(self, members=members, parts=self.parts[first:end], work=self.shared + len(members) * self._own)

    @property
    def _own(self) -> float:
        return (self.work - self.shared) / len(self.members)


def plan(prompts: Sequence[Sequence[int]], n_drawn: int, n_workers: int) -> list[Group]:
    """The groups in the order in which they should begin: first the longest, which would delay the end; the others in
    the order of the file, so that answers can be written as they complete.

    prompts: tokens of each; n_drawn: limit on tokens of an answer
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
    """All groups. common: number of common tokens of neighbours in `order`."""
    own = [len(tokens[i]) + drawn for i in order]
    before = np.concatenate([[0.0], np.cumsum(own)])
    # branches too large for a group: lengths of their prefix and of the prefixes around it, and their prompts that are
    # in no smaller branch (indices in `order`)
    large: list[tuple[tuple[int, ...], list[int]]] = [((0,), [])]
    nearest = _nearest(order, common)
    branches = [(0, len(order), 0)] if order else []  # first, end, index in `large` of the branch around it
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
    """For each prompt, the numbers of tokens in common with its neighbours in `order`."""
    beside = [0, *common, 0]
    return {i: {beside[place], beside[place + 1]} for place, i in enumerate(order)}


def _group(members: list[int], shared: int, work: float, nearest: dict[int, set[int]], above: tuple[int, ...]) -> Group:
    """above: lengths of prefixes after which other groups differ from this one."""
    rising = sorted(members)
    parts = (sorted(n for n in nearest[i] | {shared, *above} if n >= WORTH_SHARING) for i in rising)
    return Group(tuple(rising), shared, work, tuple(map(tuple, parts)))


def _runs(
    members: list[tuple[int, float]], above: tuple[int, ...], most: float, nearest: dict[int, set[int]]
) -> Iterator[Group]:
    """Groups of prompts of a large branch that are in no smaller branch: each has about `most` work. Without a common
    prefix, every prompt is its own group.

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
