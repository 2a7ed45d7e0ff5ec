"""Worker threads that execute programs together, and how many of them there should be."""

import ctypes
import math
import os
import threading
import time
import weakref
from collections.abc import Callable, Collection, Sequence
from functools import cache
from pathlib import Path

import numpy as np

from hybrid.quant.ggml.control_groups import group_folders
from hybrid.quant.ggml.numa import interleaved

from ..kernels.execute import (
    CLOSED,
    EXIT,
    GENERATION,
    GROUP_BYTES,
    GROUPS,
    N_SHARES,
    STOP,
    STOPPER,
    SYNC_BYTES,
    TICKS_PER_US,
    executor,
)
from .record import Program, aligned_empty

EXHAUSTED = 1 << 40  # of a counter: more than any op has items, small enough to be multiplied by their sizes


class Interrupted(KeyboardInterrupt):
    """A run was stopped (Ctrl-C, a `Stop` or `LoadedModel.stop`); the sequences are as they were before it."""


# --- how many ---
def default_threads() -> int:
    """Physical cores that this process may use, but not more than its share of the machine's time allows."""
    quota = cpu_quota()
    return physical_cores() if quota is None else max(1, min(physical_cores(), math.ceil(quota)))


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


def cpu_quota(root: Path = Path("/")) -> float | None:
    """Cores' worth of time that the control groups of this process allow (Linux, versions 1 and 2); None: no limit."""
    limits = (_group_quota(folder) for folder in group_folders("cpu", root))
    return min((limit for limit in limits if limit is not None), default=None)


def _group_quota(folder: Path) -> float | None:
    try:
        if (folder / "cpu.max").exists():
            quota, period = (folder / "cpu.max").read_text().split()
        else:
            quota, period = ((folder / f"cpu.cfs_{what}_us").read_text() for what in ("quota", "period"))
        return float(quota) / float(period) if quota != "max" and float(quota) > 0 else None
    except (OSError, ValueError, ZeroDivisionError):
        return None


# --- workers ---
@cache
def _ticks_per_us() -> int:
    """Rate of the counter that the executor measures time with."""
    execute = executor()
    begin, ticks = time.perf_counter(), execute(0, 0, 0, 0, 0)
    time.sleep(0.001)
    ticks = execute(0, 0, 0, 0, 0) - ticks
    return max(1, round(ticks / (time.perf_counter() - begin) / 1e6))


class Stop:
    """Ends the work that it was given to, and no other work: for threads that serve several, and for signal handlers.

    `set` may come from anywhere at any time: before the work begins, which then does not begin; or after its end, when
    it changes nothing. It stays set: give every piece of work its own Stop.
    """

    def __init__(self) -> None:
        self._word = ctypes.c_int64(0)  # the executor reads it after every op
        self._pool: Pool | None = None  # where the work is

    @property
    def is_set(self) -> bool:
        return self._word.value != 0

    @property
    def address(self) -> int:
        """Of an i64 that is not 0 once this is set."""
        return ctypes.addressof(self._word)

    def set(self) -> None:
        """End the work, within milliseconds if it runs."""
        self._word.value = 1
        if self._pool is not None:
            self._pool.hurry(self)

    def check(self) -> None:
        """Interrupted once this is set."""
        if self.is_set:
            raise Interrupted


def _work(execute: Callable[..., int], sync: np.ndarray, i: int, cpus: Collection[int], nodes: Sequence[int]) -> None:
    """The life of worker i, for which `sync` is held: it waits in it. cpus: that it runs on; none: on any. nodes: see
    Pool."""
    if cpus:
        os.sched_setaffinity(0, cpus)
    with interleaved(nodes):
        execute(int(sync.ctypes.data), i, 0, 0, 0)


def _end(execute: Callable[..., int], sync: np.ndarray) -> None:
    """Sends the workers home."""
    ctypes.c_int64.from_address(int(sync.ctypes.data) + EXIT).value = 1
    execute(int(sync.ctypes.data), 0, 0, 0, 0)  # tells those who sleep


class Pool:
    """The caller of `run` and n - 1 workers. Between runs the workers sleep; see kernels/execute.py. They end with
    `close`, or when the pool is collected.

    cpus   of `check_usable`, at least n or none: the i-th thread runs on the i-th, the caller while it runs a program
    nodes  of `nodes_to_spread_over`: what the threads touch first is dealt out to these, the caller's while it runs one
    """

    def __init__(self, n: int, cpus: Sequence[int] = (), nodes: Sequence[int] = ()) -> None:
        assert not cpus or len(cpus) >= n
        self.n, self._cpus, self._nodes = n, cpus, nodes
        self._execute = executor()
        self._sync = aligned_empty(SYNC_BYTES)
        self._sync[:] = 0
        self._address = int(self._sync.ctypes.data)
        # Of the run that goes on, or was the last. Held where these change: `hurry` comes from other threads, and from
        # signal handlers of the thread that holds it.
        self._lock = threading.RLock()
        self._counters: np.ndarray | None = None
        self._stop: Stop | None = None
        self._state, self._interrupt, self._stopper, self._exit = map(self._word, (0, STOP, STOPPER, EXIT))
        self._state.value = CLOSED
        self._sync[GROUPS:].view(np.int64)[:: GROUP_BYTES // 8] = CLOSED
        self._word(N_SHARES).value = n
        self._word(TICKS_PER_US).value = _ticks_per_us()
        self._threads = [
            threading.Thread(
                target=_work,
                args=(self._execute, self._sync, i, {cpus[i]} if cpus else (), nodes),
                name=f"hybrid-{i}",
                daemon=True,
            )
            for i in range(1, n)
        ]
        for thread in self._threads:
            thread.start()
        self._end = weakref.finalize(self, _end, self._execute, self._sync)
        self._end.atexit = False  # a thread may be in a run, which ends with the process

    def _word(self, at: int) -> ctypes.c_int64:
        return ctypes.c_int64.from_address(self._address + at)

    def hurry(self, stop: Stop | None) -> None:
        """Let the run that `stop` ends finish the op that it is in; does nothing when another one runs.

        What shares its work through a counter (attention at a depth of 64 k tokens takes seconds) finds nothing left to
        take. What the run has written is not to be used.
        """
        with self._lock:
            if self._stop is stop and self._counters is not None:
                self._counters[:] = EXHAUSTED

    def run(self, program: Program, *, stoppable: bool, stop: Stop | None = None, stamps: int = 0) -> None:
        """Execute `program`. stoppable: it may take long, so `stop` or an exception of a signal handler ends it early.

        Raises Interrupted when it was ended early: some ops have then not run, or not in full. Otherwise an exception
        of a signal handler leaves it when the whole program has run, or nothing of it.
        """
        if not self._nodes:
            self._run_pinned(program, stoppable, stop, stamps)
            return
        with interleaved(self._nodes):
            self._run_pinned(program, stoppable, stop, stamps)

    def _run_pinned(self, program: Program, stoppable: bool, stop: Stop | None, stamps: int) -> None:
        if not self._cpus:
            self._run(program, stoppable, stop, stamps)
            return
        before = os.sched_getaffinity(0)
        try:
            os.sched_setaffinity(0, {self._cpus[0]})
            self._run(program, stoppable, stop, stamps)
        finally:  # threads that the caller starts, and what else it does, are not confined
            os.sched_setaffinity(0, before)

    def _run(self, program: Program, stoppable: bool, stop: Stop | None, stamps: int) -> None:
        assert self._exit.value == 0 and program.n_threads == self.n
        stop = stop if stoppable else None
        with self._lock:
            program.counters[:] = 0
            self._counters, self._stop = program.counters, stop
        self._interrupt.value = 0
        self._stopper.value = stop.address if stop is not None else 0
        if stop is not None:
            stop._pool = self  # before the look at it: whoever sets it from now on finds the counters
            stop.check()
        records, n_ops = int(program.records.ctypes.data), len(program.ops)
        before = self._state.value >> GENERATION
        signal: BaseException | None = None
        # A signal handler may raise between any two instructions here; what was begun has to end all the same, since
        # the threads work in the program's memory. Calling the executor again does no harm: it knows what has begun.
        while True:
            try:
                while not self._ended(before):
                    self._execute(self._address, before, records, n_ops, stamps)
                break
            except BaseException as error:
                signal = error
                if stoppable:
                    self._interrupt.value = 1
                    self.hurry(stop)
        if self._interrupt.value or (stop is not None and stop.is_set):
            raise Interrupted from signal
        if signal is not None:
            raise signal  # the whole program has run

    def _ended(self, before: int) -> bool:
        """Whether the run that began at generation `before` is over."""
        state = self._state.value
        return state & CLOSED != 0 and state >> GENERATION != before

    def close(self) -> None:
        """End the workers."""
        self._end()
        for thread in self._threads:
            thread.join()
