"""Alternating updates against float64."""

from typing import Any

import numpy as np
import pytest
from reference.run_kernel import guarded, record, run, same_bits, worst

from hybrid.infer.kernels.rows import altup

N_TOK = 7
SHAPES = [(4, 33), (2, 16), (3, 5), (5, 130)]


def rows(width: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    whole, view = guarded((N_TOK, width), seed)
    view[...] = np.random.default_rng(seed).standard_normal((N_TOK, width))
    return whole, view


def call(kernel: Any, n_threads: int, **fields: Any) -> None:
    run(kernel, record(kernel, count=np.array([N_TOK]), **fields), n_threads)


@pytest.mark.parametrize(("n_stream", "n"), SHAPES)
def test_predict(n_stream: int, n: int) -> None:
    x, given = rows(n_stream * n, 1)
    mix, numbers = rows(n_stream * n_stream, 2)
    results = []
    for n_threads in (1, 3):
        out, got = rows(n_stream * n, 3)
        call(altup.predict_streams, n_threads, x=x, mix=mix, out=out, n=n, n_stream=n_stream)
        results.append(got.copy())
    streams = given.astype(np.float64).reshape(N_TOK, n_stream, n)
    want = streams + numbers.astype(np.float64).reshape(N_TOK, n_stream, n_stream) @ streams
    assert worst(results[0], want.reshape(N_TOK, -1)) < 1e-6
    assert same_bits(*results)


@pytest.mark.parametrize(("n_stream", "n"), SHAPES)
def test_correct(n_stream: int, n: int) -> None:
    predicted, before = rows(n_stream * n, 1)
    mix, numbers = rows(n_stream, 2)
    active = n_stream - 1
    results = []
    for n_threads in (1, 3):
        x, got = rows(n_stream * n, 4)
        made, found = rows(n, 3)
        want_made = found.astype(np.float64) - before[:, active * n : (active + 1) * n]
        call(
            altup.correct_streams,
            n_threads,
            x=x,
            predicted=predicted,
            made=made,
            mix=mix,
            n=n,
            n_stream=n_stream,
            active=active,
        )
        assert worst(found, want_made) < 1e-6
        results.append(got.copy())
    want = before.reshape(N_TOK, n_stream, n) + (1 + numbers.astype(np.float64))[:, :, None] * want_made[:, None]
    assert worst(results[0], want.reshape(N_TOK, -1)) < 1e-6
    assert same_bits(*results)


@pytest.mark.parametrize("n", [1, 16, 37, 300])
def test_match_magnitude(n: int) -> None:
    x, given = rows(n, 1)
    y, got = rows(n, 2)
    got[2] = 1e-5  # below the floor
    want = got.astype(np.float64)
    size = np.sqrt(np.maximum((want * want).mean(1, keepdims=True), 1e-3))
    want *= np.sqrt((given.astype(np.float64) ** 2).mean(1, keepdims=True)) / size
    call(altup.match_magnitude, 2, x=x, y=y, n=n, floor=1e-3)
    assert worst(got, want) < 1e-6


@pytest.mark.parametrize("deviations", [1.6448534, -0.3])
@pytest.mark.parametrize("n", [1, 16, 37, 300])
def test_gaussian_top(n: int, deviations: float) -> None:
    x, got = rows(n, 1)
    got += 3  # means that count
    want = got.astype(np.float64)
    want = np.maximum(want - want.mean(1, keepdims=True) - deviations * want.std(1, keepdims=True), 0)
    call(altup.gaussian_top, 2, x=x, n=n, deviations=deviations)
    assert worst(got, want) < 2e-6
    assert n < 100 or 0 < (got == 0).mean() < 1


def test_broken_values_stay_visible() -> None:
    x, got = rows(20, 1)
    got[3, 4] = np.nan
    call(altup.gaussian_top, 1, x=x, n=20, deviations=1.0)
    assert np.isnan(got[3]).all()
    assert np.isfinite(np.delete(got, 3, 0)).all()
