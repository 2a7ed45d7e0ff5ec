"""Which answers the workers get next, and which worker gets a group of them.

A worker has about two answers for each slot, so that it never waits for the next; what it has not begun stays with the
client, whatever the size of the group. So a slow worker keeps little that others could do, and who is idle gets a group
that nobody has yet, or else half of what is left of the largest one.

Dask is not asked to move answers of a group before the last ones have begun: it weighs what moving costs against how
long an answer takes, of which its estimate changes tenfold within seconds where workers are of different speeds.
"""

import math
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from .prompt_groups import Group

DEPTH = 2  # answers for each slot: one that is drawn, and the next
ROUND_SECONDS = 0.1  # from the end of an answer until the worker has another: it has as many more as it draws meanwhile


@dataclass(eq=False)
class GroupBranch:
    """Those of a group that go to one worker.

    worker     its address; None: none is there
    last       no group is left that nobody has: they may be moved
    n_left     of its answers, how many have not been asked for
    beginning  Dask's future of what they begin with, once it has been asked for
    """

    group: Group
    worker: str | None
    last: bool
    n_left: int
    beginning: Any = field(default=None, repr=False)
    n_out: int = 0

    @property
    def first_left(self) -> int:
        """Its place among the members."""
        return len(self.group.members) - self.n_left


class Schedule:
    """groups: of answers, by their numbers, in the order in which they should begin."""

    def __init__(self, groups: Iterable[Group]) -> None:
        self._fresh = deque(groups)
        self._open: list[GroupBranch] = []  # with answers that have not been asked for
        self._n_out = 0
        self._on: Counter[str | None] = Counter()  # answers of branches that are out, by their worker
        self.n_left = sum(len(group.members) for group in self._fresh)

    def next(self, slots: Mapping[str, int], rate: float) -> Iterator[tuple[int, tuple[int, ...], GroupBranch | None]]:
        """Answers to ask for now: number, parts (see `Group`), and its branch where it shares what it begins with.

        slots  of every worker that is there
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
        """An answer of this branch is there, or is asked for again without it."""
        self._n_out -= 1
        if branch is not None:
            branch.n_out -= 1
            self._on[branch.worker] -= 1

    def asked_again(self) -> None:
        """One is, without a branch."""
        self._n_out += 1

    def lost(self, branch: GroupBranch) -> None:
        """Its worker is gone: what is left of it begins anew."""
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
        """Of the branch that has the most left: what another worker can do, unless reading the beginning again takes
        longer than that is worth."""
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
