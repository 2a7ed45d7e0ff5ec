"""Queries laid out for pairs of heads, and the difference of two softmax results, to the bit."""

import numpy as np
import pytest
from reference.run_kernel import guarded, record, run

from hybrid.infer.kernels.attention.differential import spread_pairs, subtract_pairs

N_TOK = 3


@pytest.mark.parametrize("n", [1, 7, 16, 24, 65])
@pytest.mark.parametrize("n_threads", [1, 3])
def test_spread(n: int, n_threads: int) -> None:
    x = np.random.default_rng(n).standard_normal((N_TOK, 5 * 2 * n), np.float32)
    whole, out = guarded((N_TOK, 5 * 4 * n))
    out[...] = np.nan
    run(spread_pairs, record(spread_pairs, count=np.array([N_TOK]), x=x, out=out, n_pair=5, n=n), n_threads)
    assert (whole[:, 5 * 4 * n :] == 7.25).all()
    pairs, got = x.reshape(N_TOK, 5, 2, n), out.reshape(N_TOK, 5, 2, 2, n)
    np.testing.assert_array_equal(got[:, :, [0, 1], [0, 1]], pairs)
    assert not got[:, :, [0, 1], [1, 0]].any()


@pytest.mark.parametrize("n", [1, 7, 16, 24, 65])
@pytest.mark.parametrize("n_threads", [1, 3])
def test_subtract(n: int, n_threads: int) -> None:
    x = np.random.default_rng(n).standard_normal((N_TOK, 5 * 2 * n), np.float32)
    whole, out = guarded((N_TOK, 5 * n))
    fields = record(subtract_pairs, count=np.array([N_TOK]), x=x, out=out, n_pair=5, n=n, factor=0.3)
    run(subtract_pairs, fields, n_threads)
    assert (whole[:, 5 * n :] == 7.25).all()
    first, second = x.reshape(N_TOK, 5, 2, n).astype(np.float64).transpose(2, 0, 1, 3)
    # f64 holds the product and, but for an ulp of f64, the difference
    np.testing.assert_array_equal(out.reshape(N_TOK, 5, n), (first - np.float32(0.3) * second).astype(np.float32))
