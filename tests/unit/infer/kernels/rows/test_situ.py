"""The gate of Kimi K3 against float64."""

import numpy as np
import pytest
from reference.kimi_k3 import situ as expected
from reference.run_kernel import guarded, record, run, same_bits, worst

from hybrid.infer.kernels.rows.situ import situ


@pytest.mark.parametrize("n", [1, 7, 16, 33, 250, 1031])
@pytest.mark.parametrize("n_threads", [1, 3])
@pytest.mark.parametrize("linear_beta", [0.0, 2.5])
def test_situ(n: int, n_threads: int, linear_beta: float) -> None:
    rng = np.random.default_rng(n)
    gate, up = (np.float32(5) * rng.standard_normal((4, n), np.float32) for _ in range(2))
    gate[3] /= 1000  # where a tangent made of exponentials would lose digits
    up[3] /= 1000
    whole, out = guarded((4, n))
    fields = {"count": np.array([4], np.int64), "gate": gate, "up": up, "n": n, "beta": 1.3, "linear_beta": linear_beta}
    run(situ, record(situ, out=out, **fields), n_threads)
    assert (whole[:, n:] == 7.25).all()
    want = expected(gate.astype(np.float64), up.astype(np.float64), 1.3, linear_beta)
    print(f"error {worst(out, want):.1e} of max(1, |out|)")
    assert worst(out, want) < 8e-7
    np.testing.assert_allclose(out[3], want[3], rtol=6e-7)
    run(situ, record(situ, out=gate, **fields))  # in place
    assert same_bits(gate, np.ascontiguousarray(out))


def test_nan_stays_nan() -> None:
    gate, up = np.zeros((1, 17), np.float32), np.ones((1, 17), np.float32)
    gate[0, 2], up[0, 16] = np.nan, np.nan
    out = np.empty_like(gate)
    run(situ, record(situ, count=np.array([1]), gate=gate, up=up, out=out, n=17, beta=1.3, linear_beta=2.0))
    assert np.isnan(out[0]).nonzero()[0].tolist() == [2, 16]
