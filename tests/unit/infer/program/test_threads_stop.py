"""A Stop or a signal ends its own run at any moment, and leaves the next run whole."""

import signal
import sys
import threading
from types import FrameType

import numpy as np
import pytest
from pool_programs import NO_BATCH, program, slow_program

from hybrid.infer.kernels.build.jit import compile_kernels, kernel
from hybrid.infer.kernels.emit.emitter import atomic_add
from hybrid.infer.kernels.emit.fields import Counter
from hybrid.infer.kernels.execute import EXECUTE
from hybrid.infer.program.builder import Builder
from hybrid.infer.program.threads import Interrupted, Pool, Stop


@pytest.mark.parametrize("n_threads", [1, 3, 8])
def test_stop_ends_a_run_and_the_next_one_is_whole(n_threads: int) -> None:
    cells = np.zeros(1000, np.int64)
    long = slow_program(n_threads, 400)
    short = program(cells, 3, n_threads)
    pool = Pool(n_threads)
    stop = Stop()
    timer = threading.Timer(0.05, stop.set)
    timer.start()
    with pytest.raises(Interrupted):
        while True:
            pool.run(long, stoppable=True, stop=stop)
    timer.join()
    for _ in range(3):
        cells[:] = 0
        pool.run(short, stoppable=True)
        assert (cells == 14).all()
    pool.close()


@kernel
def count_for_ever(a, tid, nth, *, counter: Counter):
    while atomic_add(counter, 1) < 1 << 39:  # hours
        pass


@pytest.mark.parametrize("n_threads", [1, 2])
def test_stop_ends_an_op_that_would_never_end(n_threads: int) -> None:
    b = Builder(1, n_threads, exact=False, batch=NO_BATCH)
    b.op(count_for_ever)
    endless = b.build()
    compile_kernels([*endless.kernels, EXECUTE])
    endless.link()
    pool = Pool(n_threads)
    for _ in range(2):
        stop = Stop()
        timer = threading.Timer(0.02, stop.set)
        timer.start()
        with pytest.raises(Interrupted):
            pool.run(endless, stoppable=True, stop=stop)
        timer.join()
    pool.close()


def test_a_stop_is_for_its_own_runs() -> None:
    cells = np.zeros(100, np.int64)
    doubling = program(cells, 3, 2)
    pool = Pool(2)
    early, late, unused = Stop(), Stop(), Stop()
    early.set()
    with pytest.raises(Interrupted):
        pool.run(doubling, stoppable=True, stop=early)
    assert not cells.any(), "what was stopped before it began has run"
    pool.run(doubling, stoppable=True, stop=late)
    late.set()
    unused.set()
    for stop in (None, Stop()):
        cells[:] = 0
        pool.run(doubling, stoppable=True, stop=stop)
        assert (cells == 14).all()
    cells[:] = 0
    pool.run(doubling, stoppable=False, stop=early)  # runs to its end
    assert (cells == 14).all()
    pool.close()


@pytest.mark.parametrize("n_threads", [1, 3, 9])
def test_stops_that_come_late_do_not_reach_other_runs(n_threads: int) -> None:
    """A thread stops every other run around its end: the runs between are whole, whenever the stop comes."""
    n_runs = 1500 if n_threads < 8 else 60  # pools with threads that wait for a core
    cells = np.zeros(300, np.int64)
    doubling = program(cells, 4, n_threads)
    pool = Pool(n_threads)
    waiting: list[Stop] = []
    ended = threading.Event()

    def stopper() -> None:
        while not ended.is_set():
            if waiting:
                waiting.pop().set()

    thread = threading.Thread(target=stopper)
    thread.start()
    interrupted = 0
    try:
        for _ in range(n_runs):
            stop = Stop()
            waiting.append(stop)
            try:
                pool.run(doubling, stoppable=True, stop=stop)
            except Interrupted:
                assert stop.is_set
                interrupted += 1
            cells[:] = 0
            pool.run(doubling, stoppable=True, stop=Stop())
            assert (cells == 30).all()
    finally:
        ended.set()
        thread.join()
        pool.close()
    print(f"{interrupted} of {n_runs} runs stopped")


def test_ctrl_c_reaches_a_long_run() -> None:
    long = slow_program(2, 400)
    pool = Pool(2)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(0.05, lambda: signal.raise_signal(signal.SIGINT))
    try:
        with pytest.raises(KeyboardInterrupt):
            timer.start()  # here, or a busy machine ends pytest
            while True:
                pool.run(long, stoppable=True)
    finally:
        timer.join()
        signal.signal(signal.SIGINT, before)
    pool.run(long, stoppable=True)
    pool.close()


@pytest.mark.parametrize("n_threads", [1, 2, 3, 8])
def test_a_signal_at_any_instruction_leaves_the_threads_in_step(n_threads: int) -> None:
    """A handler may raise anywhere in `run`: the run ends, and the next one is whole."""
    cells = np.zeros(100, np.int64)
    doubling = program(cells, 2, n_threads)
    pool = Pool(n_threads)
    rng = np.random.default_rng(1)
    hits = 0

    def trace(frame: FrameType, event: str, arg: object) -> object:
        nonlocal countdown
        frame.f_trace_opcodes = True
        if event == "opcode" and frame.f_code.co_filename.endswith("threads.py"):
            countdown -= 1
            if countdown == 0:
                raise KeyboardInterrupt
        return trace

    for stoppable in (False, True):
        for _ in range(300):
            cells[:] = 0
            countdown = int(rng.integers(1, 250))
            sys.settrace(trace)
            try:
                pool.run(doubling, stoppable=stoppable)
            except KeyboardInterrupt:
                hits += 1
            finally:
                sys.settrace(None)
            if not stoppable:
                assert (cells == cells[0]).all() and cells[0] in (0, 6), "half a program has run"
            cells[:] = 0
            pool.run(doubling, stoppable=False)
            assert (cells == 6).all(), "something of the stop was left"
    print(f"{hits} of 600 runs interrupted")
    assert hits > 100
    pool.close()
