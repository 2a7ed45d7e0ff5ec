"""xIELU against float64 at odd lengths."""

import numpy as np
import pytest
from reference.plain import xielu as in_float64
from reference.run_kernel import guarded, record, run, same_bits, worst

from hybrid.infer.kernels.rows.xielu import xielu

SETTINGS = {"positive": 0.9, "negative": 1.1, "linear": 0.45, "least": -1e-6}


def applied(values: np.ndarray, n_threads: int, **settings: float) -> np.ndarray:
    whole, x = guarded(values.shape)
    x[...] = values
    run(xielu, record(xielu, count=np.array([len(x)], np.int64), x=x, n=x.shape[1], **settings), n_threads)
    assert (whole[:, x.shape[1] :] == 7.25).all()
    return x.copy()


@pytest.mark.parametrize("n", [1, 7, 16, 33, 250, 1031])
@pytest.mark.parametrize("least", [-1e-6, -0.3])
def test_xielu(n: int, least: float) -> None:
    values = (np.random.default_rng(1).standard_normal((3, n)) * 3).astype(np.float32)
    settings = {**SETTINGS, "least": least}
    outputs = [applied(values, n_threads, **settings) for n_threads in (1, 2, 3)]
    error = worst(outputs[0], in_float64(values.astype(np.float64), *settings.values()))
    print(f"{n}: {error:.1e}")
    assert error < 4e-7
    assert all(same_bits(outputs[0], other) for other in outputs[1:])


def test_small_values_keep_their_digits() -> None:
    """Near 0 the exponential and the subtracted number are almost equal."""
    values = -np.logspace(-7, 1, 333, dtype=np.float32)[None]
    settings = {"positive": 0.0, "negative": 1.0, "linear": 1.0, "least": 0.0}  # exp(x) - 1
    got, expected = applied(values, 1, **settings), np.expm1(values.astype(np.float64))
    error = np.abs(got / expected - 1).max()
    print(f"{error:.1e}")
    assert error < 6e-7


def test_ends_of_the_scale() -> None:
    values = np.array([[0.0, -0.0, -200.0, -1e30, 1e3, np.nan, -1e-20]], np.float32)
    got = applied(values, 1, **SETTINGS)[0]
    assert np.isnan(got[5])
    there = np.delete(np.arange(7), 5)
    np.testing.assert_allclose(
        got[there], in_float64(values[0, there].astype(float), *SETTINGS.values()), rtol=1e-5, atol=2e-6
    )
