"""Placement of buffers."""

import numpy as np

from hybrid.infer.program.operands import Buffer
from hybrid.infer.program.record import place_buffers


def test_buffers_that_live_at_the_same_time_do_not_overlap() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        buffers = []
        for _ in range(30):
            first = int(rng.integers(0, 40))
            buffers.append(Buffer(64 * int(rng.integers(1, 20)), first, first + int(rng.integers(0, 8))))
        total = place_buffers(buffers)
        for i, a in enumerate(buffers):
            assert 0 <= a.offset <= total - a.nbytes
            for b in buffers[:i]:
                if a.first <= b.last and b.first <= a.last:
                    assert a.offset + a.nbytes <= b.offset or b.offset + b.nbytes <= a.offset
        assert total < sum(b.nbytes for b in buffers)
