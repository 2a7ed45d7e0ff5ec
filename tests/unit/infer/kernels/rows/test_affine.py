"""Rows shifted, scaled and added, at odd lengths."""

import numpy as np
import pytest
from reference.run_kernel import guarded, record, run, worst

from hybrid.infer.kernels.rows.affine import add_scaled_rows, affine_rows

LENGTHS = [1, 7, 16, 33, 250, 1031]


def drawn(n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Rows, and three vectors."""
    rng = np.random.default_rng(n)
    rows, more = (rng.standard_normal((3, n), np.float32) for _ in range(2))
    vectors = rng.standard_normal((4, n), np.float32)
    whole, x = guarded((3, n))
    x[...] = rows
    return whole, x, more, vectors


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("n_threads", [1, 3])
def test_affine(n: int, n_threads: int) -> None:
    whole, x, _, (weight, bias, _, _) = drawn(n)
    expected = (x + bias) * weight
    run(affine_rows, record(affine_rows, count=np.array([3]), x=x, weight=weight, bias=bias, n=n), n_threads)
    assert (whole[:, n:] == 7.25).all()
    np.testing.assert_array_equal(x, expected)


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("n_threads", [1, 3])
def test_sum(n: int, n_threads: int) -> None:
    whole, x, more, (weight, bias, more_weight, more_bias) = drawn(n)
    doubles = [a.astype(np.float64) for a in (x, bias, weight, more, more_bias, more_weight)]
    expected = (doubles[0] + doubles[1]) * doubles[2] + (doubles[3] + doubles[4]) * doubles[5]
    fields = record(
        affine_rows,
        count=np.array([3]),
        x=x,
        weight=weight,
        bias=bias,
        n=n,
        more=more,
        more_weight=more_weight,
        more_bias=more_bias,
    )
    run(affine_rows, fields, n_threads)
    assert (whole[:, n:] == 7.25).all()
    assert worst(x, expected) < 2e-6


@pytest.mark.parametrize("n", LENGTHS)
def test_scaled_and_added(n: int) -> None:
    whole, x, more, (weight, *_) = drawn(n)
    expected = x.astype(np.float64) + more.astype(np.float64) * weight
    run(add_scaled_rows, record(add_scaled_rows, count=np.array([3]), x=x, more=more, weight=weight, n=n), 2)
    assert (whole[:, n:] == 7.25).all()
    assert worst(x, expected) < 2e-7
