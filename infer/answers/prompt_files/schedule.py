"""Which answers the workers get next, and which worker gets a group of them.

A worker has about two answers for each slot, so that it never waits for the next. The client holds all other answers
of a group, whatever its size: a slow worker holds up few answers, and an idle worker gets a new group or, if all have
begun, half of the largest rest.

Dask may not move answers of a group before the last group has begun: Dask weighs the cost of a move against its
estimate of the time of an answer, which changes tenfold within seconds if workers differ in speed.
"""

import math
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from .prompt_groups import Group

DEPTH = 2  # answers for each slot: the current one and the next
ROUND_SECONDS = 0.1  # from the end of an answer until its worker has another; workers get extra answers for this time


@dataclass(eq=False)
class GroupBranch:
    """The part of a group that one worker answers.

    worker     its address; None: no worker was connected
    last       all groups have begun: Dask may move answers
    n_left     number of its answers that no worker has yet
    beginning  Dask's future of the common prefix, once it is submitted
    n_out      number of answers that its worker has
    """

    group: Group
    worker: str | None
    last: bool
    n_left: int
    beginning: Any = field(default=None, repr=False)
    n_out: int = 0

    @property
    def first_left(self) -> int:
        """Index of the first member that no worker has yet."""
        return len(self.group.members) - self.n_left


class Schedule:
    """Chooses the next answers. groups: of answers, by their numbers, in the order in which they should begin."""

    def __init__(self, groups: Iterable[Group]) -> None:
        self._fresh = deque(groups)
        self._open: list[GroupBranch] = []  # with answers that no worker has
        self._n_out = 0
        self._on: Counter[str | None] = Counter()  # number of submitted answers of branches, by worker
        self.n_left = sum(len(group.members) for group in self._fresh)

    def next(self, slots: Mapping[str, int], rate: float) -> Iterator[tuple[int, tuple[int, ...], GroupBranch | None]]:
        """Answers to submit now: number, parts (see `Group`), and its branch (None for a single prompt).

        slots  of every connected worker
        rate   answers per second of all workers
        """
        more = math.ceil(ROUND_SECONDS * rate)
        most = DEPTH * sum(slots.values()) + more

        def asked(branch: GroupBranch) -> Iterator[tuple[int, tuple[int, ...], GroupBranch]]:
            each = DEPTH * slots.get(branch.worker or "", 1) + more // max(1, len(slots))
            while branch.n_left and branch.n_out < each:
                yield self._ask(branch)

        for branch in list(self._open):
            yield from asked(branch)
        while self._n_out < max(1, most):
            if self._fresh:
                group = self._fresh.popleft()
                if not group.shared:
                    yield from self._alone(group)
                    continue
            elif (half := self._half()) is not None:
                group = half
            else:
                return
            worker = min(slots, key=lambda address: self._on[address] / slots[address], default=None)
            branch = GroupBranch(group, worker, last=not self._fresh, n_left=len(group.members))
            self._open.append(branch)
            yield from asked(branch)

    def over(self, branch: GroupBranch | None) -> None:
        """An answer of this branch is complete, or will be submitted again without a branch."""
        self._n_out -= 1
        if branch is not None:
            branch.n_out -= 1
            self._on[branch.worker] -= 1

    def asked_again(self) -> None:
        """An answer is submitted again without a branch."""
        self._n_out += 1

    def lost(self, branch: GroupBranch) -> None:
        """The branch's worker is gone: the rest of the branch becomes a new group."""
        if branch.n_left:
            self._fresh.appendleft(branch.group.part(branch.first_left))
            branch.n_left = 0
            self._open.remove(branch)

    def _ask(self, branch: GroupBranch) -> tuple[int, tuple[int, ...], GroupBranch]:
        place = branch.first_left
        branch.n_left -= 1
        branch.n_out += 1
        self._on[branch.worker] += 1
        self._n_out += 1
        self.n_left -= 1
        if not branch.n_left:
            self._open.remove(branch)
        return branch.group.members[place], branch.group.parts[place], branch

    def _alone(self, group: Group) -> Iterator[tuple[int, tuple[int, ...], None]]:
        self._n_out += len(group.members)
        self.n_left -= len(group.members)
        yield from ((number, parts, None) for number, parts in zip(group.members, group.parts, strict=True))

    def _half(self) -> Group | None:
        """Half of the longest rest, for another worker; None if reading the common prefix again would take longer
        than that rest.
        """
        branch = max(self._open, key=lambda branch: branch.n_left, default=None)
        if branch is None or branch.n_left < branch.group.reading:
            return None
        n = (branch.n_left + 1) // 2
        split = len(branch.group.members) - n
        half = branch.group.part(split)
        branch.group = branch.group.part(0, split)
        branch.n_left -= n
        if not branch.n_left:
            self._open.remove(branch)
        return half
