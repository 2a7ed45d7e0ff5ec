"""The centered convolution against its formula in float64, for texts beside each other."""

import numpy as np
import pytest
from reference.run_kernel import guarded, record, run, same_bits, worst

from hybrid.infer.kernels.rows.centered_conv import centered_conv


def reference(x: np.ndarray, before: np.ndarray, after: np.ndarray, w: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """One text: rows [tok, n]."""
    half, inner = len(w) // 2, np.pad(before.astype(np.float64) * x, ((len(w) // 2, len(w) // 2), (0, 0)))
    assert len(inner) == len(x) + 2 * half
    return after * (bias + sum(w[k] * inner[k : k + len(x)] for k in range(len(w))))


@pytest.mark.parametrize(("n", "d_conv"), [(3, 3), (16, 1), (37, 5), (64, 3)])
@pytest.mark.parametrize("biased", [False, True])
def test_texts_beside_each_other(n: int, d_conv: int, biased: bool) -> None:
    rng = np.random.default_rng(n)
    lengths = (1, 7, 2, 19)
    total = sum(lengths)
    (_, x), (_, before), (_, after) = (guarded((total, n)) for _ in range(3))
    for rows in (x, before, after):
        rows[...] = rng.standard_normal((total, n))
    w, bias = rng.standard_normal((d_conv, n)).astype(np.float32), rng.standard_normal(n).astype(np.float32)
    pos = np.concatenate([np.arange(k) for k in lengths])
    last = np.concatenate([np.full(k, k - 1) for k in lengths])
    results = []
    for n_threads in (1, 3):
        whole, y = guarded((total, n))
        given = {"x": x, "before": before, "after": after, "w": w, "y": y, "n": n, "d_conv": d_conv}
        given |= {"count": np.array([total]), "pos": pos, "last": last, **({"bias": bias} if biased else {})}
        run(centered_conv, record(centered_conv, **given), n_threads)
        assert (whole[:, n:] == 7.25).all()
        results.append(y.copy())
    assert same_bits(*results)
    parts = (np.split(rows, np.cumsum(lengths)[:-1]) for rows in (x, before, after))
    wanted = [reference(*text, w, bias * biased) for text in zip(*parts, strict=True)]
    error = worst(results[0], np.concatenate(wanted))
    print(error)
    assert error < 3e-7 * d_conv
