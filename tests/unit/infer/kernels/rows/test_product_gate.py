"""The gate of Opt.Gear's mixer against float64."""

import numpy as np
import pytest
from reference.run_kernel import guarded, record, run, same_bits, worst

from hybrid.infer.kernels.rows.product_gate import gate_by_products


@pytest.mark.parametrize("n", [1, 7, 16, 33, 250])
@pytest.mark.parametrize(("n_head", "n_kv"), [(6, 2), (3, 3), (5, 1)])
@pytest.mark.parametrize("n_threads", [1, 4])
def test_gate_by_products(n: int, n_head: int, n_kv: int, n_threads: int) -> None:
    rng = np.random.default_rng(n)
    q = np.float32(3) * rng.standard_normal((5, n_head * n), np.float32)
    k, v = (np.float32(2) * rng.standard_normal((5, n_kv * n), np.float32) for _ in range(2))
    whole, out = guarded((5, n_head * n))
    fields = {"count": np.array([5], np.int64), "k": k, "v": v, "n_head": n_head, "n_kv": n_kv, "n": n}
    run(gate_by_products, record(gate_by_products, q=q, out=out, **fields), n_threads)
    assert (whole[:, n_head * n :] == 7.25).all()
    wide = [np.repeat(x.reshape(5, n_kv, n), n_head // n_kv, axis=1).astype(np.float64) for x in (k, v)]
    want = (wide[1] / (1 + np.exp(-q.reshape(5, n_head, n) * wide[0]))).reshape(5, -1)
    print(f"error {worst(out, want):.1e} of max(1, |out|)")
    assert worst(out, want) < 1.5e-7
    run(gate_by_products, record(gate_by_products, q=q, out=q, **fields))  # in place
    assert same_bits(q, np.ascontiguousarray(out))


def test_nan_stays_nan() -> None:
    q, k, v = (np.ones((1, 19), np.float32) for _ in range(3))
    q[0, 2], k[0, 17], v[0, 18] = np.nan, np.nan, np.nan
    out = np.empty_like(q)
    count = np.array([1])
    run(gate_by_products, record(gate_by_products, count=count, q=q, k=k, v=v, out=out, n_head=1, n_kv=1, n=19))
    assert np.isnan(out[0]).nonzero()[0].tolist() == [2, 17, 18]
