"""Whose turn it is: which job gets the next place, and which answer gives its place up for it.

Every client has as many places as any other, as far as it has jobs for them: a job of a client that has two fewer than
another takes one of the other's, so that no two answers take a place from each other in turn. An answer that nobody
reads counts as none, and makes room for anybody.
"""

from collections import Counter, deque
from collections.abc import Sequence
from itertools import islice

from .job import Answer, Job

QUEUE_AHEAD = 1024  # jobs of the queue that are looked at for whose turn it is


class Queue:
    """The jobs that have no place: those that wait for one, and those that wait for somebody to read them."""

    def __init__(self) -> None:
        self.waiting: deque[Job] = deque()
        self.paused: list[Job] = []

    def add(self, job: Job, *, first: bool = False) -> None:
        """At the end, or before all others."""
        jobs = self.paused if job.paused else self.waiting
        jobs.insert(0 if first else len(jobs), job)

    def remove(self, job: Job) -> bool:
        """False: it was not here."""
        jobs = next((jobs for jobs in (self.waiting, self.paused) if job in jobs), None)
        if jobs is not None:
            jobs.remove(job)
        return jobs is not None

    def next(self, running: Sequence[Answer]) -> Job:
        """Of the jobs that wait longest the first of whoever has the fewest running. There is one."""
        counts = _counts(running)
        return min(islice(self.waiting, QUEUE_AHEAD), key=lambda job: counts[job.client])


def gives_way(running: Sequence[Answer], client: object, *, for_turns: bool) -> Answer | None:
    """Which answer is set aside for a job of this client; None: the job waits. running: in the order of their joining.

    One that nobody reads; with `for_turns` else the oldest of the client that has most, which loses nothing for good.
    """
    counts, able = _counts(running), [answer for answer in running if answer.can_be_set_aside]
    if paused := [answer for answer in able if answer.is_paused]:
        return paused[0]
    least = counts[client] + 2
    more = [answer for answer in able if counts[answer.job.client] >= least and answer.has_gone_on]
    return max(more, key=lambda answer: counts[answer.job.client], default=None) if for_turns else None


def _counts(running: Sequence[Answer]) -> Counter[object]:
    """How many places each client has."""
    return Counter(answer.job.client for answer in running if not answer.is_paused)
