"""Programs for tests of threads: ops that record whether, and how often, they ran."""

import numpy as np

from hybrid.infer.kernels.build.jit import kernel
from hybrid.infer.kernels.emit.emitter import atomic_add, ldi, sti
from hybrid.infer.kernels.emit.fields import Address, Counter, Int
from hybrid.infer.kernels.execute import EXECUTE
from hybrid.infer.program.builder import Batch, Builder, Program, Ref

NO_BATCH = Batch(*[0] * 12)


@kernel
def add_one(a, tid, nth, *, cells: Address, n: Int, counter: Counter):
    """Adds 1 to n cells."""
    while True:
        i = atomic_add(counter, 1)
        if i >= n:
            break
        sti(cells + 8 * i, ldi(cells + 8 * i) + 1)


@kernel
def double(a, tid, nth, *, cells: Address, n: Int):
    """Doubles n cells."""
    for i in range(tid, n, nth):
        sti(cells + 8 * i, ldi(cells + 8 * i) * 2)


@kernel
def slow(a, tid, nth, *, cells: Address, rounds: Int):
    """Each share `tid` of an op takes a different time."""
    for i in range(rounds * (tid + 1)):
        sti(cells + 64 * tid, ldi(cells + 64 * tid) + (i & 1) + 1)
    atomic_add(cells + 64 * tid + 8, 1)


def slow_program(n_threads: int, n_ops: int) -> Program:
    """Ops of about 0.1 ms."""
    b = Builder(1, n_threads, exact=False, batch=NO_BATCH)
    cells = b.buffer(64 * n_threads)
    for _ in range(n_ops):
        b.op(slow, cells=Ref(cells), rounds=50_000)
    slow_ops = b.build()
    slow_ops.arena[:] = 0
    slow_ops.link()
    return slow_ops


def program(cells: np.ndarray, rounds: int, n_threads: int) -> Program:
    b = Builder(1, n_threads, exact=False, batch=NO_BATCH)
    for _ in range(rounds):
        b.op(add_one, cells=cells.ctypes.data, n=len(cells))
        b.op(double, cells=cells.ctypes.data, n=len(cells))
    doubling = b.build()
    _ = EXECUTE.address
    doubling.link()
    return doubling
