"""Rotary embedding against its float64 twin."""

import numpy as np
import pytest
from reference import attention as twin
from reference.run_kernel import guarded, record, run, same_bits, worst

from hybrid.infer.kernels.attention import rope as kernels


@pytest.mark.parametrize("style", [kernels.NORM, kernels.NEOX])
@pytest.mark.parametrize(("n_head", "d_head", "n_rot"), [(3, 38, 38), (5, 64, 64), (2, 21, 10), (300, 6, 4)])
def test_rope(style: int, n_head: int, d_head: int, n_rot: int) -> None:
    n = 63
    rng = np.random.default_rng(0)
    x = rng.standard_normal((n, n_head, d_head), np.float32)
    factors = rng.uniform(0.5, 8, n_rot // 2)
    pos = rng.integers(0, 500, n).astype(np.int64)
    table = kernels.rope_table(500, n_rot, 10000.0, 0.5, factors)
    assert table.shape == (500, n_rot // 2, 2)
    want = twin.rope(x, pos, n_rot, 10000.0, 0.5, factors, style == kernels.NEOX)
    results = []
    for threads in (1, 2, 3):
        whole, rows = guarded((n, n_head * d_head))
        rows[...] = x.reshape(n, -1)
        ctl = np.array([n, 1, 0], np.int64)
        run(
            kernels.rope,
            record(
                kernels.rope,
                ctl=ctl,
                pos=pos,
                x=whole,
                n_head=n_head,
                d_head=d_head,
                n_rot=n_rot,
                table=table,
                style=style,
            ),
            threads,
        )
        assert (whole[:, n_head * d_head :] == 7.25).all()
        results.append(rows.reshape(x.shape).copy())
    error = worst(results[0], want)
    print(f"rope {style} {n_head} x {d_head} ({n_rot}): error {error:.1e}")
    assert error < 4e-7
    assert same_bits(results[0], results[1]) and same_bits(results[0], results[2])
