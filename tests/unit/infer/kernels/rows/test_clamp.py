"""Values kept within a limit, at odd lengths: the same bits as numpy's."""

import numpy as np
import pytest
from reference.run_kernel import guarded, record, run, same_bits

from hybrid.infer.kernels.rows.clamp import clamp, clamp_between


@pytest.mark.parametrize("n", [1, 7, 16, 33, 250, 1031])
@pytest.mark.parametrize("n_threads", [1, 3])
def test_clamp(n: int, n_threads: int) -> None:
    values = (np.random.default_rng(n).standard_normal((3, n)) * 3).astype(np.float32)
    values[:, :: max(1, n // 3)] = [[0.0], [-1.5], [np.nan]]
    whole, x = guarded((3, n))
    x[...] = values
    run(clamp, record(clamp, count=np.array([3], np.int64), x=x, n=n, limit=1.5), n_threads)
    assert (whole[:, n:] == 7.25).all()
    assert same_bits(x, np.clip(values, np.float32(-1.5), np.float32(1.5)))


@pytest.mark.parametrize("n", [1, 33, 250])
@pytest.mark.parametrize("bounds", [(-0.5, 2.0), (1.0, -1.0), (-np.inf, 0.25)])
def test_clamp_between(n: int, bounds: tuple[float, float]) -> None:
    values = (np.random.default_rng(n).standard_normal((3, n)) * 3).astype(np.float32)
    values[0, 0] = np.nan
    target, out = guarded((3, n))
    low, high = (np.float32(bound) for bound in bounds)
    fields = record(clamp_between, count=np.array([3], np.int64), x=values, out=target, n=n, low=low, high=high)
    run(clamp_between, fields, 2)
    assert same_bits(out.copy(), np.minimum(np.maximum(values, low), high))
    assert (target[:, n:] == 7.25).all()
