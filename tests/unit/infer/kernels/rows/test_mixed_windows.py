"""Sums with taps of each token's own against float64."""

import numpy as np
import pytest
from reference.run_kernel import guarded, record, run, same_bits, worst

from hybrid.infer.kernels.rows.mixed_windows import mixed_windows


@pytest.mark.parametrize(("n_tok", "n_head", "n", "n_window"), [(1, 1, 5, 2), (7, 3, 37, 4), (4, 2, 160, 3)])
def test_matches_float64(n_tok: int, n_head: int, n: int, n_window: int) -> None:
    rng = np.random.default_rng(n)
    width = n_head * n + 3  # values from window to window
    x = rng.standard_normal((n_tok, n_window * width)).astype(np.float32)
    w = rng.standard_normal((n_window, n_head * n)).astype(np.float32)
    _, more = guarded((n_tok, n_head * n_window))
    more[...] = rng.standard_normal(more.shape)
    scale, results = 0.37, []
    for n_threads in (1, 2, 3):
        whole, out = guarded((n_tok, n_head * n), 6)
        fields = record(
            mixed_windows, count=np.array([n_tok]), x=x, part=4 * width, w=w, more=more, y=whole, n_head=n_head, n=n,
            n_window=n_window, scale=np.float32(scale),
        )  # fmt: skip
        run(mixed_windows, fields, n_threads)
        assert (whole[:, n_head * n :] == 7.25).all()
        results.append(out.copy())
    want = np.zeros((n_tok, n_head, n))
    for j in range(n_window):
        taps = w[j].astype(np.float64).reshape(n_head, n) + scale * more.reshape(n_tok, n_head, -1)[:, :, -1 - j, None]
        want += taps * x[:, j * width :][:, : n_head * n].reshape(want.shape)
    error = worst(results[0].reshape(want.shape), want)
    print(f"error {error:.1e}")
    assert error < 1e-6
    assert same_bits(results[0], results[1]) and same_bits(results[0], results[2])
