"""Placement of buffers, and threads that run programs."""

import signal
import sys
import threading
import time
from types import FrameType

import numpy as np
import pytest
from hybrid.infer.kernels.emit import arg, atomic_add, ldi, sti
from hybrid.infer.kernels.execute import EXECUTE
from hybrid.infer.kernels.jit import kernel
from hybrid.infer.program import Batch, Buffer, Builder, Counter, Program, Ref, _place
from hybrid.infer.threads import Interrupted, Pool, physical_cores

NO_BATCH = Batch(*[0] * 12)


def test_buffers_that_live_at_the_same_time_do_not_overlap() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        buffers = []
        for _ in range(30):
            first = int(rng.integers(0, 40))
            buffers.append(Buffer(64 * int(rng.integers(1, 20)), first, first + int(rng.integers(0, 8))))
        total = _place(buffers)
        for i, a in enumerate(buffers):
            assert 0 <= a.offset <= total - a.nbytes
            for b in buffers[:i]:
                if a.first <= b.last and b.first <= a.last:
                    assert a.offset + a.nbytes <= b.offset or b.offset + b.nbytes <= a.offset
        assert total < sum(b.nbytes for b in buffers)


@kernel
def add_one(a, tid, nth):
    """Adds 1 to `n` cells: 0 cells, 1 n, 2 counter."""
    while True:
        i = atomic_add(arg(a, 2), 1)
        if i >= arg(a, 1):
            break
        sti(arg(a, 0) + 8 * i, ldi(arg(a, 0) + 8 * i) + 1)


@kernel
def double(a, tid, nth):
    for i in range(tid, arg(a, 1), nth):
        sti(arg(a, 0) + 8 * i, ldi(arg(a, 0) + 8 * i) * 2)


def program(cells: np.ndarray, rounds: int, n_threads: int) -> Program:
    b = Builder(1, n_threads, exact=False, batch=NO_BATCH)
    for _ in range(rounds):
        b.op(add_one, cells.ctypes.data, len(cells), Counter())
        b.op(double, cells.ctypes.data, len(cells))
    made = b.build()
    _ = EXECUTE.address
    made.link()
    return made


@pytest.mark.parametrize("patient", [False, True])
@pytest.mark.parametrize("n_threads", [1, 2, 5])
def test_every_op_sees_what_the_one_before_wrote(n_threads: int, patient: bool) -> None:
    cells = np.zeros(101, np.int64)
    made = program(cells, 20, n_threads)
    pool = Pool(n_threads)
    for _ in range(5):
        cells[:] = 0
        pool.run(made, patient=patient)
        assert (cells == 2 * (2**20 - 1)).all()
    pool.close()


@pytest.mark.parametrize("n_threads", [1, 3])
def test_stop_ends_a_run_and_the_next_one_is_whole(n_threads: int) -> None:
    cells = np.zeros(1000, np.int64)
    long = program(cells, 20000, n_threads)
    short = program(cells, 3, n_threads)
    pool = Pool(n_threads)
    timer = threading.Timer(0.05, pool.stop)
    timer.start()
    with pytest.raises(Interrupted):
        while True:
            pool.run(long, patient=True)
    timer.join()
    for _ in range(3):
        cells[:] = 0
        pool.run(short, patient=True)
        assert (cells == 14).all()
    pool.close()


def test_ctrl_c_reaches_a_long_run() -> None:
    cells = np.zeros(1000, np.int64)
    long = program(cells, 30000, 2)
    pool = Pool(2)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(0.05, lambda: signal.raise_signal(signal.SIGINT))
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            while True:
                pool.run(long, patient=True)
    finally:
        timer.join()
        signal.signal(signal.SIGINT, before)
    pool.run(long, patient=True)
    pool.close()


@pytest.mark.parametrize("n_threads", [1, 2, 3])
def test_a_signal_at_any_instruction_leaves_the_threads_in_step(n_threads: int) -> None:
    """A handler may raise anywhere in `run`. Whatever the run did then, it ends, and the next one is whole."""
    cells = np.zeros(100, np.int64)
    made = program(cells, 2, n_threads)
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

    for patient in (False, True):
        for _ in range(300):
            cells[:] = 0
            countdown = int(rng.integers(1, 250))
            sys.settrace(trace)
            try:
                pool.run(made, patient=patient)
            except KeyboardInterrupt:
                hits += 1
            finally:
                sys.settrace(None)
            if not patient:
                assert (cells == cells[0]).all() and cells[0] in (0, 6), "half a program has run"
            cells[:] = 0
            for _ in range(2):  # a stop may still be pending
                try:
                    pool.run(made, patient=False)
                    break
                except Interrupted:
                    cells[:] = 0
            assert (cells == 6).all()
    print(f"{hits} of 600 runs interrupted")
    assert hits > 100
    pool.close()


def test_idle_threads_use_no_time() -> None:
    cells = np.zeros(10, np.int64)
    pool = Pool(2)
    pool.run(program(cells, 5, 2), patient=True)
    begin = time.process_time()
    time.sleep(0.3)
    assert time.process_time() - begin < 0.1
    pool.close()


def test_cores_are_counted() -> None:
    assert physical_cores() >= 1


def test_op_fields_become_addresses() -> None:
    b = Builder(1, 1, exact=False, batch=NO_BATCH)
    first, second = b.buffer(100), b.buffer(10)
    b.op(double, Ref(first, 8), 1.5)
    b.op(double, Ref(second), 7)
    made = b.build()
    base = made.arena.ctypes.data
    assert made.records[0, 1] == base + first.offset + 8
    assert made.records[0, 2] == int(np.float32(1.5).view(np.uint32))
    assert made.records[1, 2] == 7
    assert first.offset == second.offset == 0  # they do not live at the same time
