"""Rows times matrices of their own and times rows, at odd lengths."""

import numpy as np
import pytest
from reference.run_kernel import guarded, record, run, same_bits, worst

from hybrid.infer.kernels.rows.token_matrices import multiply_rows, token_products


@pytest.mark.parametrize(("n_in", "n"), [(1, 1), (7, 5), (32, 32), (3, 50)])
def test_products(n_in: int, n: int) -> None:
    rng, results = np.random.default_rng(n), []
    x, matrix = rng.standard_normal((5, n_in), np.float32), rng.standard_normal((5, n_in * n), np.float32)
    for n_threads in (1, 3):
        whole, out = guarded((5, n))
        fields = record(token_products, count=np.array([5]), x=x, matrix=matrix, out=whole, n_in=n_in, n=n)
        run(token_products, fields, n_threads)
        assert (whole[:, n:] == 7.25).all()
        results.append(out.copy())
    assert same_bits(*results)
    wide = matrix.astype(np.float64).reshape(5, n_in, n)
    assert worst(results[0], np.einsum("ti,tij->tj", x.astype(np.float64), wide)) < 2e-6


@pytest.mark.parametrize("n", [1, 33, 1031])
@pytest.mark.parametrize("biased", [False, True])
def test_multiplied(n: int, biased: bool) -> None:
    rng = np.random.default_rng(n)
    before, y = rng.standard_normal((2, 3, n), np.float32)
    bias = rng.standard_normal(n, np.float32)
    whole, x = guarded((3, n))
    x[...] = before
    more = {"bias": bias} if biased else {}
    run(multiply_rows, record(multiply_rows, count=np.array([3]), x=whole, y=y, n=n, **more), 2)
    assert (whole[:, n:] == 7.25).all()
    np.testing.assert_array_equal(x, before * (y + bias if biased else y))
