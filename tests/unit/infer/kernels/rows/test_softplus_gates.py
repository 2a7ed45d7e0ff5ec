"""Gates by softplus against float64."""

import numpy as np
import pytest
from reference.run_kernel import guarded, record, run, worst

from hybrid.infer.kernels.rows.softplus_gates import softplus_gates


@pytest.mark.parametrize("n_threads", [1, 3])
@pytest.mark.parametrize("each", [0, 1])
@pytest.mark.parametrize(("n_tok", "n_head", "n"), [(1, 5, 17), (7, 3, 20), (16, 1, 9), (3, 7, 150)])
def test_softplus_gates(n_tok: int, n_head: int, n: int, each: int, n_threads: int) -> None:
    rng = np.random.default_rng(n)
    whole, x = guarded((n_tok, n_head * n))
    x[:] = rng.standard_normal(x.shape)
    gate = (6 * rng.standard_normal((n_tok, n_head * n if each else n_head))).astype(np.float32)
    gate.flat[:3] = -90, 0, 70  # log(1 + exp) of the ends: hardly more than 0, and the number itself
    factors = np.logaddexp(0, gate.astype(np.float64)).reshape(n_tok, n_head, -1)
    want = (x.astype(np.float64).reshape(n_tok, n_head, n) * factors).reshape(x.shape)
    fields = record(softplus_gates, count=np.array([n_tok]), x=x, gate=gate, n_head=n_head, n=n, each=each)
    run(softplus_gates, fields, n_threads)
    assert (whole[:, n_head * n :] == 7.25).all()
    print(f"error {worst(x, want):.1e} of max(1, |x|)")
    np.testing.assert_allclose(x, want, rtol=1e-6, atol=1e-30)
