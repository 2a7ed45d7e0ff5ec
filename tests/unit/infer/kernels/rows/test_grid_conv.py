"""A gated convolution over a grid, and the row of zeros behind it."""

import numpy as np
import pytest
from reference.run_kernel import guarded, record, run, same_bits, worst

from hybrid.infer.kernels.rows.grid_conv import grid_conv, zero_row


@pytest.mark.parametrize(("n", "n_tap"), [(5, 9), (16, 25), (50, 1), (33, 9)])
def test_taps_and_gates(n: int, n_tap: int) -> None:
    count, rng = 7, np.random.default_rng(0)
    whole, x = guarded((count + 1, 3 * n), 1)
    target, out = guarded((count, n), 2)
    x[...] = rng.standard_normal(x.shape)
    counts = np.array([count], np.int64)
    run(zero_row, record(zero_row, count=counts, x=whole, n=3 * n), 2)
    assert not x[count].any() and x[:count].all()
    near, weight = rng.integers(0, count + 1, (count, n_tap)), rng.standard_normal((n_tap, n)).astype(np.float32)
    results = []
    for threads in (1, 3):
        fields = record(grid_conv, count=counts, x=whole, near=near, weight=weight, out=target, n=n, n_tap=n_tap)
        run(grid_conv, fields, threads)
        results.append(out.copy())
    before, after, value = np.split(x.astype(np.float64), 3, axis=1)
    want = after[:count] * np.einsum("tjn,jn->tn", (before * value)[near], weight)
    assert worst(results[0], want) < 1e-6
    assert same_bits(*results)
    assert (target[:, n:] == 7.25).all(), "wrote beyond the rows"
