"""A pass of a batch between its begin and its end."""

from collections.abc import Sequence

from ...program.threads import core_turns
from ...runner import Runner, Work
from .job import Job, RunningJob


class UnderWay:
    """A pass that was begun: its works, and the answers that own them."""

    def __init__(self, runner: Runner, works: Sequence[Work], owners: Sequence[RunningJob]) -> None:
        for answer in owners:
            answer.before = answer.seq.n_past, len(answer.result.ids)
        self.works, self.owners = works, owners
        self.start = core_turns().clock()
        self.begun = runner.begin(works)
        for answer in owners:
            assert answer.before is not None
            answer.held = answer.before[0]

    @property
    def jobs(self) -> list[Job]:
        """The jobs of the owners."""
        return [answer.job for answer in self.owners]

    def give_up(self) -> None:
        """Drops the results. The sequences stay unchanged."""
        self.begun.give_up()
        for answer in self.owners:
            answer.held = None
