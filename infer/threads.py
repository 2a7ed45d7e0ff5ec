"""Worker threads that execute programs together."""

import ctypes
import os
import threading
from pathlib import Path
from typing import NamedTuple

import numpy as np

from .kernels.execute import GENERATION, STOP, SYNC_BYTES, executor
from .program import Program, aligned_empty


class Interrupted(KeyboardInterrupt):
    """A run was stopped (Ctrl-C or `Model.stop`); the sequences are as they were before it."""


def physical_cores() -> int:
    """Cores that this process may use; hyper-threads of one core count once where the system tells."""
    try:
        allowed = os.sched_getaffinity(0)
    except AttributeError:  # macOS
        return os.cpu_count() or 1
    siblings = set()
    for cpu in allowed:
        topology = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        try:
            siblings.add(topology.read_text())
        except OSError:
            return len(allowed)
    return len(siblings) or 1


class Job(NamedTuple):
    """What the threads from `first` on are to do; the caller is thread 0 when first is 1."""

    number: int
    first: int
    program: int
    n_ops: int
    base: int
    stamps: int


class Pool:
    """`n` threads. Short programs: the caller is thread 0. Long ones: all are workers, and Ctrl-C reaches the caller.

    Between runs the workers sleep on semaphores.
    """

    def __init__(self, n: int) -> None:
        self.n = n
        self._execute = executor()
        self._sync = aligned_empty(SYNC_BYTES).view(np.int64)
        self._sync[:] = 0
        self._address = int(self._sync.ctypes.data)
        self._job = Job(0, 0, 0, 0, 0, 0)
        self._finished = [0] * n  # number of the last job that each thread has left
        self._go = [threading.Semaphore(0) for _ in range(n)]
        self._left = threading.Event()
        self._closed = False
        self._interrupt = ctypes.c_int64.from_address(self._address + STOP)
        names = [f"hybrid-{tid}" for tid in range(n)]
        self._threads = [
            threading.Thread(target=self._work, args=(tid,), name=name, daemon=True) for tid, name in enumerate(names)
        ]
        for thread in self._threads:
            thread.start()

    def _work(self, tid: int) -> None:
        while True:
            self._go[tid].acquire()
            if self._closed:
                return
            job = self._job
            if tid < job.first or self._finished[tid] == job.number:
                continue  # called more than once for a job, see `run`
            self._execute(job.program, job.n_ops, tid, self.n, self._address, job.base, job.stamps)
            self._finished[tid] = job.number
            self._left.set()

    def stop(self) -> None:
        """Ask the running program to end after the op it is at. From any thread, any time."""
        self._interrupt.value = 1

    def run(self, program: Program, *, patient: bool, stamps: int = 0) -> None:
        """Execute `program`. patient: it may take long, the caller waits where a signal can reach it.

        Raises Interrupted when it was stopped: some ops have then not run.
        """
        assert not self._closed
        program.counters[:] = 0
        n_ops = len(program.ops)
        if self._reached < 0:  # the last run was stopped
            self._sync[:] = 0
        base, first = self._reached, 0 if patient else 1
        job = Job(self._job.number + 1, first, int(program.records.ctypes.data), n_ops, base, stamps)
        workers = range(first, self.n)
        signal: BaseException | None = None
        # A signal handler may raise between any two instructions here, and threads at a barrier would wait forever for
        # one that never came. So what was begun is completed: every step may be repeated without harm, and is.
        while True:
            try:
                self._job = job  # from here on a thread may begin
                for tid in workers:
                    self._go[tid].release()
                if not patient:
                    self._take_part(job)
                while any(self._finished[tid] != job.number for tid in workers):
                    self._left.wait(0.1)
                    self._left.clear()
                break
            except BaseException as error:
                signal = error
                if patient:
                    self.stop()
        if self._interrupt.value:
            # the stop may have come after the last op
            complete = self.n > 1 and self._reached == base + n_ops
            self._sync[:] = 0
            if complete and signal is not None:
                raise signal
            raise Interrupted from signal
        if signal is not None:
            raise signal  # the whole program has run, or nothing of it

    @property
    def _reached(self) -> int:
        """The generation after the last op that all threads have left; negative when that run was stopped there."""
        return int(self._sync[GENERATION // 8])

    def _take_part(self, job: Job) -> None:
        """Be thread 0 of the job, once."""
        if self._finished[0] == job.number:
            return
        if self.n == 1:
            self._finished[0] = job.number
        # no op ends without thread 0: a generation that has moved says that it was there
        if self.n == 1 or self._reached == job.base:
            self._execute(job.program, job.n_ops, 0, self.n, self._address, job.base, job.stamps)
        self._finished[0] = job.number

    def close(self) -> None:
        self._closed = True
        for go in self._go:
            go.release()
        for thread in self._threads:
            thread.join()
