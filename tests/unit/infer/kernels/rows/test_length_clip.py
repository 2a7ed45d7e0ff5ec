"""Heads of limited length against float64."""

import numpy as np
import pytest
from reference.inkling import clipped
from reference.run_kernel import guarded, record, run, same_bits, worst

from hybrid.infer.kernels.rows.length_clip import length_clip


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize(("n_tok", "n_group", "n"), [(1, 1, 5), (7, 3, 37), (4, 2, 160)])
def test_matches_float64(n_tok: int, n_group: int, n: int, shared: bool) -> None:
    rng = np.random.default_rng(n)
    # some heads are longer than the limit; one of several is 0
    x = (rng.standard_normal((n_tok, n_group, n)) * rng.uniform(0.5, 1.5, (n_tok, n_group, 1))).astype(np.float32)
    x[1:, -1] = 0
    weight = (1 + rng.standard_normal((n,) if shared else (n_group, n)) / 8).astype(np.float32)
    limit, results = float(np.sqrt(n)), []
    for n_threads in (1, 2, 3):
        whole, out = guarded((n_tok, n_group * n), 6)
        out[...] = x.reshape(n_tok, -1)
        fields = record(
            length_clip, count=np.array([n_tok]), x=whole, weight=weight, stride=0 if shared else weight.strides[0],
            n_group=n_group, n=n, limit=limit,
        )  # fmt: skip
        run(length_clip, fields, n_threads)
        assert (whole[:, n_group * n :] == 7.25).all()
        results.append(out.copy())
    want = clipped(x.astype(np.float64) * weight, limit)
    error = worst(results[0].reshape(x.shape), want)
    print(f"error {error:.1e}")
    assert error < 4e-7
    assert n_tok == 1 or 0 < (np.abs(want - x * weight) > 1e-3).any(-1).sum() < n_tok * n_group
    assert same_bits(results[0], results[1]) and same_bits(results[0], results[2])


def test_no_number_stays_visible() -> None:
    x = np.ones((1, 20), np.float32)
    x[0, 3] = np.nan
    weight = np.ones(10, np.float32)
    run(length_clip, record(length_clip, count=np.array([1]), x=x, weight=weight, stride=0, n_group=2, n=10, limit=2.0))
    assert np.isnan(x[0, :10]).all() and np.isfinite(x[0, 10:]).all()
