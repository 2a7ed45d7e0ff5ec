"""Processes of this machine that work for one command: what they inherit from it."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker
from typing import TYPE_CHECKING

from distributed.utils import LoopRunner

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
