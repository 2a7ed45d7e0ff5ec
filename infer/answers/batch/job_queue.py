"""Whose turn it is: which job gets the next place, and which answer gives up its place for it.

A client takes a place of another client that has at least two more. So it never ends up with more than the other, and
no place goes back and forth. An answer that nobody reads does not count, and gives up its place to anybody.
"""

from collections import Counter, deque
from collections.abc import Sequence
from itertools import islice

from .job import Job, RunningJob

QUEUE_AHEAD = 1024  # jobs of the queue from which the next is chosen


class Queue:
    """The jobs without a place. paused: jobs that nobody reads, which do not wait for one."""

    def __init__(self) -> None:
        self.waiting: deque[Job] = deque()
        self.paused: list[Job] = []

    def add(self, job: Job, *, first: bool = False) -> None:
        """Adds a job at the end, or before all others."""
        jobs = self.paused if job.paused else self.waiting
        jobs.insert(0 if first else len(jobs), job)

    def remove(self, job: Job) -> bool:
        """Removes a job. Returns False if it is not here."""
        jobs = next((jobs for jobs in (self.waiting, self.paused) if job in jobs), None)
        if jobs is not None:
            jobs.remove(job)
        return jobs is not None

    def next(self, running: Sequence[RunningJob]) -> Job:
        """The job that gets the next place: the first of the client with the fewest places. Some job must wait."""
        counts = _counts(running)
        return min(islice(self.waiting, QUEUE_AHEAD), key=lambda job: counts[job.client])


def gives_way(running: Sequence[RunningJob], client: object, *, for_turns: bool) -> RunningJob | None:
    """The answer that is set aside for a job of this client; None: the job waits. running: the oldest answer first.

    An answer that nobody reads goes first; then, if `for_turns`, the oldest of the client with the most places.
    """
    counts, able = _counts(running), [answer for answer in running if answer.can_be_set_aside]
    if paused := [answer for answer in able if answer.is_paused]:
        return paused[0]
    least = counts[client] + 2
    more = [answer for answer in able if counts[answer.job.client] >= least and answer.has_gone_on]
    return max(more, key=lambda answer: counts[answer.job.client], default=None) if for_turns else None


def _counts(running: Sequence[RunningJob]) -> Counter[object]:
    """The number of places of each client."""
    return Counter(answer.job.client for answer in running if not answer.is_paused)
