"""The gate with limits against float64."""

import numpy as np
import pytest
from reference.run_kernel import guarded, record, run, same_bits

from hybrid.infer.kernels.rows.clamped_swiglu import clamped_swiglu


@pytest.mark.parametrize("n", [1, 7, 16, 33, 250, 1031])
@pytest.mark.parametrize("n_threads", [1, 3])
@pytest.mark.parametrize("offset", [0.0, 1.0])
def test_clamped_swiglu(n: int, n_threads: int, offset: float) -> None:
    rng = np.random.default_rng(n)
    gate, up = (np.float32(5) * rng.standard_normal((3, n), np.float32) for _ in range(2))
    gate[0, 0], up[1, 0], up[2, 0] = np.nan, np.nan, -40
    alpha, limit = 1.3, 4.5
    whole, out = guarded((3, n))
    fields = {"count": np.array([3], np.int64), "gate": gate, "up": up, "n": n}
    fields |= {"alpha": alpha, "limit": limit, "offset": offset}
    run(clamped_swiglu, record(clamped_swiglu, out=out, **fields), n_threads)
    assert (whole[:, n:] == 7.25).all()
    g, u = (x.astype(np.float64) for x in (gate, up))
    g, u = np.minimum(g, limit), np.clip(u, -limit, limit)
    np.testing.assert_allclose(out, g / (1 + np.exp(-alpha * g)) * (u + offset), rtol=1e-6, atol=2e-7)
    assert np.isnan(out).sum() == 2
    run(clamped_swiglu, record(clamped_swiglu, out=gate, **fields))  # in place
    assert same_bits(gate, np.ascontiguousarray(out))
