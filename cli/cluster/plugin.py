"""What every worker does when a run begins, or when it joins one: it looks whether it fits.

A worker that joined later and does not fit begins nothing and leaves the cluster. The client hears of it on the topic
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
LEAVE_SECONDS = 0.5  # the event goes first


def checked(client: str, first: WorkerFacts | None, asked: ModelAsked | None, n_threads: int) -> WorkerFacts:
    """On a worker: its facts. ClusterError says why it does not fit. client: the version there; first: facts of the
    worker it is to give the same bits as; n_threads: of models, where they do not say it."""
    facts = WorkerFacts.here()
    if why := misfit(facts, client, first or facts, asked):
        raise ClusterError(why)
    if asked is not None:
        asked.found()
    HERE.n_threads = n_threads
    return facts


class Fits(WorkerPlugin):
    """n_threads: of the models of a worker; 0: as many as tasks that Dask gives it at a time."""

    def __init__(self, client: str, first: WorkerFacts, asked: ModelAsked | None, n_threads: int) -> None:
        self.client, self.first, self.asked, self.n_threads = client, first, asked, n_threads

    async def setup(self, worker: Worker) -> None:
        """On the worker."""
        try:
            await asyncio.to_thread(
                checked, self.client, self.first, self.asked, self.n_threads or worker.state.nthreads
            )
        except HybridError as error:
            worker.log_event(TOPIC, {"refused": label(worker.name, worker.address), "why": str(error)})
            # Dask counts it among its workers since before it was asked: what it has been sent meanwhile others do.
            worker.status = Status.closing_gracefully
            worker.loop.call_later(LEAVE_SECONDS, worker.loop.add_callback, _leave, worker)
            raise
        HERE.use()
        self.worker, self.bandwidth = worker, worker.bandwidth

    def transition(self, key: Any, start: str, finish: str, **_more: Any) -> None:
        """Dask measures its connections by what arrives: of a `Beginning` only the size that it says does not."""
        if start == "flight" and finish == "memory" and str(key).startswith(BEGINNING):
            self.worker.bandwidth = self.bandwidth

    def teardown(self, worker: Worker) -> Any:
        """On the worker, when the run is over."""
        return asyncio.to_thread(HERE.release)


class Shares(WorkerPlugin):
    """A value that every worker has under a key, those that join later, too."""

    def __init__(self, key: str, value: object) -> None:
        self.key, self.value = key, value

    def setup(self, worker: Worker) -> None:
        """On the worker."""
        HERE.share(self.key, self.value)

    def teardown(self, worker: Worker) -> Any:
        """On the worker, when the run is over."""
        return asyncio.to_thread(HERE.forget, self.key)


async def _leave(worker: Worker) -> None:
    """As one that its user ends, and not as one that dies: what it was sent is not to blame."""
    with suppress(OSError):  # the scheduler may be gone
        await worker.scheduler.retire_workers(
            workers=[worker.address], close_workers=False, remove=True, stimulus_id="hybrid-does-not-fit"
        )
    await worker.close(reason="hybrid: it does not fit")


def label(name: object, address: str) -> str:
    """`worker 3 (tcp://10.0.0.7:4711)`"""
    return f"worker {name} ({address})" if str(name) != address else f"worker {address}"
