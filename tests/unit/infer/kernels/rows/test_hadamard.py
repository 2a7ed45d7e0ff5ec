"""Rotations of rows against the matrix of their definition in float64."""

import numpy as np
import pytest
from reference.run_kernel import record, run

from hybrid.infer.kernels.rows.hadamard import normalization, restore, rotate


def transform(x: np.ndarray, block: int) -> np.ndarray:
    """The normalized Walsh-Hadamard transform of each run of `block` values of x [row][n]."""
    i = np.arange(block)
    signs = 1 - 2.0 * (np.bitwise_count(i[:, None] & i) % 2)
    return (x.reshape(len(x), -1, block) @ signs / np.sqrt(block)).reshape(x.shape)


def rows(n: int, seed: int = 1) -> tuple[np.random.Generator, np.ndarray, np.ndarray]:
    """The generator, 9 rows inside wider ones of NaN, and signs."""
    rng = np.random.default_rng(seed)
    wide = np.full((9, n + 16), np.nan, np.float32)
    wide[:, :n] = rng.standard_normal((9, n))
    return rng, wide, rng.choice([-1.0, 1.0], n).astype(np.float32)


@pytest.mark.parametrize(("n", "block"), [(16, 16), (96, 32), (384, 128), (1536, 512), (1024, 1024), (8192, 4096)])
@pytest.mark.parametrize("moved", [False, True])
def test_rotate(n: int, block: int, moved: bool) -> None:
    rng, x, signs = rows(n)
    places = rng.permutation(n).astype(np.int32) if moved else None
    groups = np.array([2, 0, 1, 3, 5, 6, 3], np.int64)  # three rows from 1 on, three from 6 on
    given = {"groups": groups, "x": x, "n": n, "block": block, "scale": normalization(block), "signs": signs}
    results = []
    for n_threads in (1, 3):
        out = np.full((9, n + 16), np.nan, np.float32)
        run(rotate, record(rotate, **given, places=places, out=out), n_threads)
        results.append(out)
    out = results[0]
    np.testing.assert_array_equal(out, results[1])
    own = [1, 2, 3, 6, 7, 8]
    expected = transform(x[own][:, :n][:, places if moved else slice(None)].astype(np.float64) * signs, block)
    np.testing.assert_allclose(out[own][:, :n], expected, atol=2e-6 * np.sqrt(np.log2(block)))
    assert np.isnan(out[:, n:]).all() and np.isnan(out[[0, 4, 5]]).all()


@pytest.mark.parametrize(("n", "block"), [(16, 16), (384, 128), (4096, 1024)])
def test_restore_is_the_inverse(n: int, block: int) -> None:
    _, x, signs = rows(n)
    given = {"n": n, "block": block, "scale": normalization(block), "signs": signs}
    turned = np.full_like(x, np.nan)
    run(rotate, record(rotate, groups=np.array([1, 0, 0, 9], np.int64), x=x, out=turned, **given))
    run(restore, record(restore, count=np.array([8], np.int64), x=turned, **given), 2)
    np.testing.assert_allclose(turned[:8, :n], x[:8, :n], atol=2e-6)
    assert np.isnan(turned[:, n:]).all()
