"""Processes of this machine that work for one command: what they inherit from it."""

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
    """An event loop in a thread of its own that does not take Ctrl-C, nor do the processes that are started from it.

    A terminal sends it to them, too; who ends them is this process, which says that it was interrupted.
    """
    resource_tracker.ensure_running()  # whoever starts it takes SIGINT again, before Python 3.12
    runner = LoopRunner(asynchronous=False)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        runner.start()  # a thread begins with the mask of who starts it
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    try:
        yield runner.loop
    finally:
        runner.stop()


LOOK_SECONDS = 1.0


@contextmanager
def kept_up(cluster: LocalCluster, n: int) -> Iterator[None]:
    """Within, `cluster` has n workers again after some have died.

    Dask starts a process that died again, but where that one dies before it is up, too, it gives the place up for good.
    """

    loop = cluster.loop
    assert loop is not None, "a cluster that runs"

    def look() -> None:  # in the cluster's loop, as all that changes its workers
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
