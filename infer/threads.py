"""Worker threads that execute programs together."""

import ctypes
import os
import threading
from pathlib import Path

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


class Pool:
    """`n` threads. Short programs: the caller is thread 0. Long ones: all are workers, and Ctrl-C reaches the caller.

    Between runs the workers sleep on a semaphore.
    """

    def __init__(self, n: int) -> None:
        self.n = n
        self._execute = executor()
        self._sync = aligned_empty(SYNC_BYTES).view(np.int64)
        self._sync[:] = 0
        self._address = int(self._sync.ctypes.data)
        self._generation = 0
        self._job: tuple[int, int, int, int] = (0, 0, 0, 0)
        self._go = [threading.Semaphore(0) for _ in range(n)]
        self._left = threading.Semaphore(0)
        self._threads: list[threading.Thread | None] = [None] * n
        self._closed = False
        self._interrupt = ctypes.c_int64.from_address(self._address + STOP)

    def _work(self, tid: int) -> None:
        while True:
            self._go[tid].acquire()
            if self._closed:
                return
            program, n_ops, base, stamps = self._job
            self._execute(program, n_ops, tid, self.n, self._address, base, stamps)
            self._left.release()

    def _start(self, tid: int) -> None:
        if self._threads[tid] is None:
            made = threading.Thread(target=self._work, args=(tid,), name=f"hybrid-{tid}", daemon=True)
            self._threads[tid] = made
            made.start()
        self._go[tid].release()

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
        self._job = (int(program.records.ctypes.data), n_ops, self._generation, stamps)
        first = 0 if patient else 1
        for tid in range(first, self.n):
            self._start(tid)
        waiting = self.n - first
        signal: BaseException | None = None
        if not patient:
            job = self._job
            self._execute(job[0], job[1], 0, self.n, self._address, job[2], job[3])
        # every worker has left before anything is changed under it; a signal only asks them to hurry
        while waiting:
            try:
                self._left.acquire()
                waiting -= 1
            except BaseException as error:
                signal = error
                self.stop()
        stopped = self._interrupt.value != 0
        done = abs(int(self._sync[GENERATION // 8])) if self.n > 1 else 0
        if stopped or signal is not None:
            # the stop may have come after the last op
            complete = self.n > 1 and int(self._sync[GENERATION // 8]) == self._generation + n_ops
            self._sync[:] = 0
            self._generation = 0
            if complete and signal is not None:
                raise signal
            raise Interrupted from signal
        self._generation = done

    def close(self) -> None:
        self._closed = True
        for tid, thread in enumerate(self._threads):
            if thread is not None:
                self._go[tid].release()
        for thread in self._threads:
            if thread is not None:
                thread.join()
