"""Worker processes on this machine for one command."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker
from typing import TYPE_CHECKING

from distributed import LocalCluster, Status
from distributed.utils import LoopRunner
from tornado.ioloop import PeriodicCallback

if TYPE_CHECKING:
    from tornado.ioloop import IOLoop


@contextmanager
def loop_without_interrupts() -> "Iterator[IOLoop]":
    """An event loop in its own thread; neither it nor processes started from it receive Ctrl-C.

    A terminal sends Ctrl-C to them also. This process ends them instead, and reports the interrupt.
    """
    resource_tracker.ensure_running()  # before Python 3.12, starting it unblocks SIGINT in the caller
    runner = LoopRunner(asynchronous=False)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        runner.start()  # a thread inherits its starter's signal mask
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    try:
        yield runner.loop
    finally:
        runner.stop()


LOOK_SECONDS = 1.0


@contextmanager
def kept_up(cluster: LocalCluster, n: int) -> Iterator[None]:
    """While open, `cluster` is brought back to n workers if some die.

    Dask restarts a process that dies, but gives up a worker for good if its process dies again before it is up.
    """

    loop = cluster.loop
    assert loop is not None, "a cluster that runs"

    def look() -> None:  # runs in the cluster's loop, as everything that changes its workers must
        if cluster.status != Status.running:
            return
        for name, worker in [*cluster.workers.items()]:
            if worker.status in (Status.closed, Status.failed):
                del cluster.workers[name]
        if len(cluster.workers) < n:
            cluster.scale(n)

    looks = PeriodicCallback(look, LOOK_SECONDS * 1000)
    loop.add_callback(looks.start)
    try:
        yield
    finally:
        loop.add_callback(looks.stop)
