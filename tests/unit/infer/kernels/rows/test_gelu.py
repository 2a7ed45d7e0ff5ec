"""GELU against float64 at odd lengths."""

import math

import numpy as np
import pytest
from reference.run_kernel import guarded, record, run, same_bits, worst

from hybrid.infer.kernels.rows.gelu import gelu, gelu_tanh


@pytest.mark.parametrize("n", [1, 7, 16, 33, 250, 1031])
@pytest.mark.parametrize("kind", ["exact", "tanh"])
def test_gelu(n: int, kind: str) -> None:
    values = (np.random.default_rng(1).standard_normal((3, n)) * 3).astype(np.float32)
    v = values.astype(np.float64)
    if kind == "exact":
        expected = v * (1 + np.vectorize(math.erf)(v / math.sqrt(2))) / 2
    else:
        expected = v * (1 + np.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v**3))) / 2
    outputs = []
    for n_threads in (1, 2, 3):
        whole, x = guarded((3, n))
        x[...] = values
        kernel = {"exact": gelu, "tanh": gelu_tanh}[kind]
        run(kernel, record(kernel, count=np.array([3], np.int64), x=x, n=n), n_threads)
        assert (whole[:, n:] == 7.25).all()
        outputs.append(x.copy())
    error = worst(outputs[0], expected)
    print(f"{kind} {n}: {error:.1e}")
    assert error < 4e-7
    assert all(same_bits(outputs[0], other) for other in outputs[1:])


def test_gelu_at_the_ends_of_the_scale() -> None:
    for kernel in (gelu, gelu_tanh):
        x = np.array([[0.0, -40.0, 40.0, -1e4, 1e4, np.nan, 1e-20, -1e-20]], np.float32)
        run(kernel, record(kernel, count=np.array([1], np.int64), x=x, n=8))
        assert np.isnan(x[0, 5])
        assert worst(np.delete(x[0], 5), np.array([0, 0, 40, 0, 1e4, 5e-21, -5e-21])) < 1e-6
