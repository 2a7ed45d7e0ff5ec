"""Check of every worker when a run begins, or when the worker joins it.

A worker that joins later and does not fit starts no task and leaves the cluster. The client is told through the topic
TOPIC of Dask's events.
"""

import asyncio
from contextlib import suppress
from typing import Any

from distributed import Status, Worker, WorkerPlugin

from hybrid.infer.stages.worker_fit import ModelAsked, WorkerFacts, misfit
from hybrid.quant.ggml.errors import ClusterError, HybridError

from .held_models import HERE
from .prompt_worker import BEGINNING

TOPIC = "hybrid-workers"
LEAVE_SECONDS = 0.5  # so that the event is sent first


def checked(client: str, first: WorkerFacts | None, asked: ModelAsked | None, n_threads: int) -> WorkerFacts:
    """On a worker: its facts. ClusterError says why it does not fit.

    client     version of the program at the client
    first      facts of the worker whose bits it must give
    n_threads  for models that ask for 0
    """
    facts = WorkerFacts.here()
    if why := misfit(facts, client, first or facts, asked):
        raise ClusterError(why)
    if asked is not None:
        asked.found()
    HERE.n_threads = n_threads
    return facts


class Fits(WorkerPlugin):
    """Dask's plugin that checks each worker. n_threads: of a worker's models; 0: as many as tasks at a time."""

    def __init__(self, client: str, first: WorkerFacts, asked: ModelAsked | None, n_threads: int) -> None:
        self.client, self.first, self.asked, self.n_threads = client, first, asked, n_threads

    async def setup(self, worker: Worker) -> None:
        """Checks this worker, which leaves the cluster if it does not fit."""
        try:
            await asyncio.to_thread(
                checked, self.client, self.first, self.asked, self.n_threads or worker.state.nthreads
            )
        except HybridError as error:
            worker.log_event(TOPIC, {"refused": label(worker.name, worker.address), "why": str(error)})
            # Dask has counted it as a worker since before the check: others do the tasks it was sent.
            worker.status = Status.closing_gracefully
            worker.loop.call_later(LEAVE_SECONDS, worker.loop.add_callback, _leave, worker)
            raise
        HERE.use()
        self.worker, self.bandwidth = worker, worker.bandwidth

    def transition(self, key: Any, start: str, finish: str, **_more: Any) -> None:
        """Keeps Dask's estimate of bandwidth, which uses the sizes that results state: a `Beginning` states a false
        one."""
        if start == "flight" and finish == "memory" and str(key).startswith(BEGINNING):
            self.worker.bandwidth = self.bandwidth

    def teardown(self, worker: Worker) -> Any:
        """Frees the worker's models at the end of the run."""
        return asyncio.to_thread(HERE.release)


class Shares(WorkerPlugin):
    """Dask's plugin that gives every worker, present and future, a value under a key."""

    def __init__(self, key: str, value: object) -> None:
        self.key, self.value = key, value

    def setup(self, worker: Worker) -> None:
        """Stores the value on this worker."""
        HERE.share(self.key, self.value)

    def teardown(self, worker: Worker) -> Any:
        """Drops the value at the end of the run."""
        return asyncio.to_thread(HERE.forget, self.key)


async def _leave(worker: Worker) -> None:
    """Leaves as if closed by its user: Dask does not blame the tasks, as it would for a death."""
    with suppress(OSError):  # the scheduler may be gone
        await worker.scheduler.retire_workers(
            workers=[worker.address], close_workers=False, remove=True, stimulus_id="hybrid-does-not-fit"
        )
    await worker.close(reason="hybrid: it does not fit")


def label(name: object, address: str) -> str:
    """`worker 3 (tcp://10.0.0.7:4711)`"""
    return f"worker {name} ({address})" if str(name) != address else f"worker {address}"
