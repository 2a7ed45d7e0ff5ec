"""A pass of a batch that was begun and has not ended."""

import time
from collections.abc import Sequence

from ...model import Model, Work
from .job import Answer, Job


class UnderWay:
    """A pass that was begun: its works, and whose they are."""

    def __init__(self, model: Model, works: Sequence[Work], owners: Sequence[Answer]) -> None:
        held = [answer.seq.n_past for answer in owners]
        self.works, self.owners = works, owners
        self.start = time.perf_counter()
        self.begun = model.runner.begin(works)
        for answer, n in zip(owners, held, strict=True):
            answer.held = n

    @property
    def jobs(self) -> list[Job]:
        """The jobs of the owners."""
        return [answer.job for answer in self.owners]

    def give_up(self) -> None:
        """Drop the results. The sequences are unchanged."""
        self.begun.give_up()
        for answer in self.owners:
            answer.held = None
