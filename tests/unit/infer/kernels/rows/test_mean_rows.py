"""Means of neighbouring rows."""

import numpy as np
import pytest
from reference.run_kernel import guarded, record, run, worst

from hybrid.infer.kernels.rows.mean_rows import mean_rows


@pytest.mark.parametrize(("n", "n_row"), [(1, 4), (17, 9), (250, 1), (33, 16)])
def test_means(n: int, n_row: int) -> None:
    whole, x = guarded((5 * n_row, n), 1)
    target, out = guarded((5, n), 2)
    x[...] = np.random.default_rng(0).standard_normal(x.shape)
    fields = record(mean_rows, count=np.array([5], np.int64), x=whole, out=target, n=n, n_row=n_row, scale=2.0 / n_row)
    run(mean_rows, fields, 3)
    assert worst(out, 2 * x.astype(np.float64).reshape(5, n_row, n).mean(1)) < 1e-6
    assert (target[:, n:] == 7.25).all(), "wrote beyond the rows"
