"""Every chunk of rows is taken once, whichever threads come; how often counters are written."""

import numpy as np
import pytest

from hybrid.infer.kernels.build.jit import compile_kernels, kernel
from hybrid.infer.kernels.emit.emitter import ldi, sti
from hybrid.infer.kernels.emit.fields import Address, Counter, Int
from hybrid.infer.kernels.execute import EXECUTE
from hybrid.infer.kernels.groups import n_groups
from hybrid.infer.kernels.products.chunks import next_chunk
from hybrid.infer.program.builder import Batch, Builder, Program
from hybrid.infer.program.threads import EXHAUSTED, Pool


@kernel
def take(a, tid, nth, *, n: Int, taken: Address, one: Int, counter: Counter):
    """Counts how often each chunk is taken, in taken[chunk]; with `one`, only the share of that number takes chunks."""
    step = 0
    while one < 0 or tid == one:
        i, step = next_chunk(counter, n, tid, nth, step)
        if i >= n:
            break
        sti(taken + 8 * i, ldi(taken + 8 * i) + 1 + tid * 1000)


def taking(n_threads: int, n: int, taken: np.ndarray, one: int = -1) -> Program:
    b = Builder(1, n_threads, exact=False, batch=Batch(*[0] * 12))
    for _ in range(3):
        b.op(take, n=n, taken=taken.ctypes.data, one=one)
    program = b.build()
    compile_kernels([*program.kernels, EXECUTE])
    program.link()
    return program


@pytest.mark.parametrize("n", [0, 1, 5, 64, 1001])
@pytest.mark.parametrize("n_threads", [1, 3, 8, 13, 35])
def test_each_chunk_is_taken_once(n_threads: int, n: int) -> None:
    taken = np.zeros(n + 1, np.int64)
    pool = Pool(n_threads)
    pool.run(taking(n_threads, n, taken), stoppable=False)
    pool.close()
    assert (taken[:n] % 1000 == 3).all() and taken[n] == 0


@pytest.mark.parametrize("one", [0, 6, 12])
def test_one_thread_takes_all_of_them(one: int) -> None:
    """First its own range, then the other shares' chunks."""
    taken = np.zeros(101, np.int64)
    pool = Pool(13)
    pool.run(taking(13, 100, taken, one), stoppable=False)
    pool.close()
    assert (taken[:100] == 3 * (1 + 1000 * one)).all() and taken[100] == 0


def test_additions_to_each_counter() -> None:
    """16 threads, 160 chunks. One counter for all had 160 additions and 16 in vain. A group's counter has 40, at most
    one in vain per thread of the group, and one per other thread that found its chunk gone."""
    taken = np.zeros(161, np.int64)
    program = taking(16, 160, taken)
    pool = Pool(16)
    pool.run(program, stoppable=False)
    pool.close()
    counters = program.counters.reshape(3, n_groups.function(16), 8)
    assert (counters[:, :, 1:] == 0).all(), "a line each"
    assert (counters[:, :, 0] >= 40).all() and (counters[:, :, 0] <= 40 + 16).all(), counters[:, :, 0]


def test_a_stop_leaves_nothing_to_take() -> None:
    """`Pool.hurry` writes a value beyond every range."""
    taken = np.zeros(161, np.int64)
    program = taking(16, 160, taken)
    program.counters[:] = EXHAUSTED
    pool = Pool(16)
    while not pool._ended(0):  # `run` would begin with counters of 0
        pool._execute(pool._address, 0, int(program.records.ctypes.data), len(program.ops), 0)
    pool.close()
    assert (taken == 0).all()
