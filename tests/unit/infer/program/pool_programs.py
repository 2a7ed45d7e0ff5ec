"""Programs for tests of the threads: ops that leave a trace of having run, and of how often."""

import numpy as np

from hybrid.infer.kernels.build.jit import kernel
from hybrid.infer.kernels.emit.emitter import arg, atomic_add, ldi, sti
from hybrid.infer.kernels.execute import EXECUTE
from hybrid.infer.program.builder import Batch, Builder, Counter, Program, Ref

NO_BATCH = Batch(*[0] * 12)


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


@kernel
def slow(a, tid, nth):
    """Share `tid` of an op takes a time of its own: 0 cells, 1 rounds."""
    for i in range(arg(a, 1) * (tid + 1)):
        sti(arg(a, 0) + 64 * tid, ldi(arg(a, 0) + 64 * tid) + (i & 1) + 1)
    atomic_add(arg(a, 0) + 64 * tid + 8, 1)


def slow_program(n_threads: int, n_ops: int) -> Program:
    """Ops of about 0.1 ms."""
    b = Builder(1, n_threads, exact=False, batch=NO_BATCH)
    cells = b.buffer(64 * n_threads)
    for _ in range(n_ops):
        b.op(slow, Ref(cells), 50_000)
    made = b.build()
    made.arena[:] = 0
    made.link()
    return made


def program(cells: np.ndarray, rounds: int, n_threads: int) -> Program:
    b = Builder(1, n_threads, exact=False, batch=NO_BATCH)
    for _ in range(rounds):
        b.op(add_one, cells.ctypes.data, len(cells), Counter())
        b.op(double, cells.ctypes.data, len(cells))
    made = b.build()
    _ = EXECUTE.address
    made.link()
    return made
