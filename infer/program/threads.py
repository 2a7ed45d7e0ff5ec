"""Worker threads that execute programs together, and the default number of them."""

import ctypes
import math
import os
import threading
import time
import weakref
from collections.abc import Callable, Collection, Sequence
from contextlib import nullcontext
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
from .core_turns import CoreTurns
from .record import Program, aligned_empty

EXHAUSTED = 1 << 40  # value of a counter: more items than any op has, small enough to be multiplied by their sizes


class Interrupted(KeyboardInterrupt):
    """A run was stopped (Ctrl-C, a `Stop` or `LoadedModel.stop`). The sequences are unchanged by it."""


# --- how many ---
def default_threads() -> int:
    """Number of physical cores that this process may use, limited by its CPU quota."""
    quota = cpu_quota()
    return physical_cores() if quota is None else max(1, min(physical_cores(), math.ceil(quota)))


def physical_cores() -> int:
    """Number of cores that this process may use. Hyper-threads of one core count once if the system lists them."""
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
    """CPU quota of this process's control groups, in cores (Linux, versions 1 and 2); None: no limit."""
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
def core_turns() -> CoreTurns:
    """The turns of all pools of this process at its cores."""
    return CoreTurns(physical_cores())


@cache
def _ticks_per_us() -> int:
    """Ticks per microsecond of the counter with which the executor measures time."""
    execute = executor()
    begin, ticks = time.perf_counter(), execute(0, 0, 0, 0, 0)
    time.sleep(0.001)
    ticks = execute(0, 0, 0, 0, 0) - ticks
    return max(1, round(ticks / (time.perf_counter() - begin) / 1e6))


class Stop:
    """Stops the work that it was given to, and no other work: for threads that do several works, and signal handlers.

    `set` may be called from anywhere at any time: before the work begins, which then does not begin, or after its end,
    when it has no effect. It stays set, so give every piece of work its own Stop.
    """

    def __init__(self) -> None:
        self._word = ctypes.c_int64(0)  # the executor reads it after every op
        self._pool: Pool | None = None  # the pool that runs the work

    @property
    def is_set(self) -> bool:
        return self._word.value != 0

    @property
    def address(self) -> int:
        """Address of an i64 that is not 0 once this is set."""
        return ctypes.addressof(self._word)

    def set(self) -> None:
        """Stop the work, within milliseconds if it is running."""
        self._word.value = 1
        if self._pool is not None:
            self._pool.hurry(self)

    def check(self) -> None:
        """Raise Interrupted if this is set."""
        if self.is_set:
            raise Interrupted


def _work(execute: Callable[..., int], sync: np.ndarray, i: int, cpus: Collection[int], nodes: Sequence[int]) -> None:
    """Run worker i until `_end`. It waits in `sync`, which this call keeps alive. cpus: processors that it may use;
    empty: any. nodes: see Pool."""
    if cpus:
        os.sched_setaffinity(0, cpus)
    with interleaved(nodes):
        execute(int(sync.ctypes.data), i, 0, 0, 0)


def _end(execute: Callable[..., int], sync: np.ndarray) -> None:
    """Make the workers end."""
    ctypes.c_int64.from_address(int(sync.ctypes.data) + EXIT).value = 1
    execute(int(sync.ctypes.data), 0, 0, 0, 0)  # wakes the sleeping ones


class Pool:
    """The caller of `run` and n - 1 workers, which sleep between runs (kernels/execute.py). They end with `close`, or
    when the pool is garbage-collected.

    cpus   checked by `check_usable`, at least n or none: the i-th thread runs on the i-th, the caller only during `run`
    nodes  from `nodes_to_spread_over`: memory that threads touch first is spread over them, for the caller during `run`
    """

    def __init__(self, n: int, cpus: Sequence[int] = (), nodes: Sequence[int] = ()) -> None:
        assert not cpus or len(cpus) >= n
        self.n, self._cpus, self._nodes = n, cpus, nodes
        self._execute = executor()
        self._sync = aligned_empty(SYNC_BYTES)
        self._sync[:] = 0
        self._address = int(self._sync.ctypes.data)
        # Guards `_counters` and `_stop`, which are of the current or last run. Reentrant: `hurry` is called from other
        # threads, and from signal handlers of the thread that holds the lock.
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
        self._end.atexit = False  # a thread may still be in a run, which ends with the process

    def _word(self, at: int) -> ctypes.c_int64:
        return ctypes.c_int64.from_address(self._address + at)

    def hurry(self, stop: Stop | None) -> None:
        """Cut the current op of the run of `stop` short. Does nothing when another run is current.

        Ops that share work through a counter (attention at a depth of 64 k tokens takes seconds) find no work left. The
        values that the run has written must not be used.
        """
        with self._lock:
            if self._stop is stop and self._counters is not None:
                self._counters[:] = EXHAUSTED

    def run(self, program: Program, *, stoppable: bool, stop: Stop | None = None, stamps: int = 0) -> None:
        """Execute `program`, after waiting for its turn if programs of other pools need the cores. stoppable: `stop` or
        an exception of a signal handler ends it early, as it may take long.

        Raises Interrupted when it was ended early: some ops have then not run, or not in full. Otherwise an exception
        of a signal handler is raised after the whole program has run, or before any of it.
        """
        with core_turns().turn(self, self.n), interleaved(self._nodes) if self._nodes else nullcontext():
            self._run_pinned(program, stoppable, stop, stamps)

    def _run_pinned(self, program: Program, stoppable: bool, stop: Stop | None, stamps: int) -> None:
        if not self._cpus:
            self._run(program, stoppable, stop, stamps)
            return
        before = os.sched_getaffinity(0)
        try:
            os.sched_setaffinity(0, {self._cpus[0]})
            self._run(program, stoppable, stop, stamps)
        finally:  # the caller's other work, and threads that it starts, are not pinned
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
            stop._pool = self  # before the check: a `set` from now on finds the counters
            stop.check()
        records, n_ops = int(program.records.ctypes.data), len(program.ops)
        before = self._state.value >> GENERATION
        signal: BaseException | None = None
        # A signal handler may raise between any two instructions here. A run that has begun must still end, since the
        # threads work in the program's memory. Calling the executor again is safe: it knows whether the run has begun.
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

    @property
    def is_running(self) -> bool:
        """Whether a program runs."""
        return self._state.value & CLOSED == 0

    def _ended(self, before: int) -> bool:
        """Whether the run that began at generation `before` is over."""
        state = self._state.value
        return state & CLOSED != 0 and state >> GENERATION != before

    def close(self) -> None:
        """End the workers."""
        self._end()
        for thread in self._threads:
            thread.join()
        core_turns().leave(self)
