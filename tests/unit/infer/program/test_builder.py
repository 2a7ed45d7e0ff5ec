"""Placement of buffers, and what becomes of an op's fields."""

import numpy as np

from hybrid.infer.kernels.build.jit import kernel
from hybrid.infer.kernels.emit.emitter import arg, ldi, sti
from hybrid.infer.program.builder import Batch, Buffer, Builder, Ref, _place

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
def copied(a, tid, nth):
    """Any kernel."""
    sti(arg(a, 0), ldi(arg(a, 1)))


def test_op_fields_become_addresses() -> None:
    b = Builder(1, 1, exact=False, batch=NO_BATCH)
    first, second = b.buffer(100), b.buffer(10)
    b.op(copied, Ref(first, 8), 1.5)
    b.op(copied, Ref(second), 7)
    made = b.build()
    base = made.arena.ctypes.data
    assert made.records[0, 1] == base + first.offset + 8
    assert made.records[0, 2] == int(np.float32(1.5).view(np.uint32))
    assert made.records[1, 2] == 7
    assert first.offset == second.offset == 0  # they do not live at the same time
