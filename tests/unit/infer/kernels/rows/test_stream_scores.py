"""Weights of residual streams against float64, with odd numbers of streams and values."""

import numpy as np
import pytest
from reference.experts import softmax
from reference.kimi import rms
from reference.run_kernel import guarded, record, run, same_bits, worst

from hybrid.infer.kernels.rows.stream_scores import stream_scores

N_TOK, EPS = 5, 3e-4


def scores(x: np.ndarray, query: np.ndarray, n_stream: int, n_threads: int = 1, normed: int = 0) -> np.ndarray:
    whole, out = guarded((N_TOK, n_stream))
    n = len(query)
    fields = record(
        stream_scores, count=np.array([N_TOK]), x=x, query=query, out=out, n=n, n_stream=n_stream, eps=EPS,
        normed=normed,
    )  # fmt: skip
    run(stream_scores, fields, n_threads)
    assert (whole[:, n_stream:] == 7.25).all()
    return out.copy()


@pytest.mark.parametrize(("n_stream", "n"), [(1, 7), (2, 16), (3, 33), (4, 1031), (9, 520)])
def test_scores(n_stream: int, n: int) -> None:
    rng = np.random.default_rng(n)
    _, x = guarded((N_TOK, (n_stream + 1) * n))  # the last one is no stream yet
    x[...] = 3 * rng.standard_normal(x.shape)
    x[:, n_stream * n :] = np.nan
    query = (2 / np.sqrt(n) * rng.standard_normal(n)).astype(np.float32)
    got = scores(x, query, n_stream)
    rows = x[:, : n_stream * n].astype(np.float64).reshape(N_TOK, n_stream, n)
    want = softmax(rms(rows, query, EPS).sum(2))
    print(f"error {worst(got, want):.1e}")
    assert worst(got, want) < 3e-7
    of_normed = scores(x, query, n_stream, normed=1)
    assert worst(of_normed, want / np.sqrt((rows * rows).mean(2) + EPS)) < 3e-7
    for n_threads in (2, 3):
        assert same_bits(scores(x, query, n_stream, n_threads), got)


def test_one_stream_is_all_there_is() -> None:
    x = np.full((N_TOK, 20), 3e4, np.float32)
    assert (scores(x, np.ones(20, np.float32), 1) == 1).all()
