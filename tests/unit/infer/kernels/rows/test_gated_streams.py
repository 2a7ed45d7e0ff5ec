"""Sublayers between gated streams at odd sizes, against float64."""

import numpy as np
import pytest
from reference.recurrent import sigmoid, silu
from reference.run_kernel import guarded, record, run, same_bits

from hybrid.infer.kernels.rows.gated_streams import inject_into_streams, mix_gated_streams, silu_rows

SIZES = [(1, 2, 1), (3, 3, 7), (4, 2, 16), (2, 5, 33), (7, 3, 515)]  # tokens, streams, values


@pytest.mark.parametrize("n_threads", [1, 3])
@pytest.mark.parametrize(("n_tok", "n_stream", "n"), SIZES)
def test_mix(n_tok: int, n_stream: int, n: int, n_threads: int) -> None:
    rng = np.random.default_rng(n)
    x, gate = (rng.standard_normal((n_tok, n_stream * n + 3)).astype(np.float32) * 3 for _ in range(2))
    whole, out = guarded((n_tok, n))
    fields = record(mix_gated_streams, count=np.array([n_tok]), x=x, gate=gate, out=whole, n_stream=n_stream, n=n)
    run(mix_gated_streams, fields, n_threads)
    assert (whole[:, n:] == 7.25).all()
    streams, gates = (a[:, : n_stream * n].astype(np.float64).reshape(n_tok, n_stream, n) for a in (x, gate))
    assert (abs(out - (streams * sigmoid(gates)).sum(1)) <= 5e-7 * abs(streams).sum(1)).all()
    alone = np.full((1, n), np.nan, np.float32)
    last = record(mix_gated_streams, count=np.array([1]), x=x[-1:], gate=gate[-1:], out=alone, n_stream=n_stream, n=n)
    run(mix_gated_streams, last)
    assert same_bits(alone[0], out[-1].copy())


@pytest.mark.parametrize("n_threads", [1, 3])
@pytest.mark.parametrize(("n_tok", "n_stream", "n"), SIZES)
def test_inject(n_tok: int, n_stream: int, n: int, n_threads: int) -> None:
    rng = np.random.default_rng(n)
    whole, x = guarded((n_tok, n_stream * n))
    x[...] = rng.standard_normal(x.shape)
    y, weights = rng.standard_normal((n_tok, n + 2)), rng.standard_normal((n_tok, n_stream + 1)) * 4
    y, weights = y.astype(np.float32), weights.astype(np.float32)
    shares = 2 * sigmoid(weights[:, :n_stream].astype(np.float64))
    before = x.astype(np.float64).reshape(n_tok, n_stream, n)
    want = before + shares[:, :, None] * y[:, None, :n]
    fields = record(inject_into_streams, count=np.array([n_tok]), x=whole, y=y, weights=weights, n_stream=n_stream, n=n)
    run(inject_into_streams, fields, n_threads)
    assert (whole[:, n_stream * n :] == 7.25).all()
    bound = 3e-7 * (abs(before) + 2 * abs(y[:, None, :n]))
    assert (abs(x.reshape(n_tok, n_stream, n) - want) <= bound).all()


@pytest.mark.parametrize("n", [1, 16, 37])
def test_silu(n: int) -> None:
    whole, x = guarded((3, n))
    x[...] = np.random.default_rng(n).standard_normal((3, n)) * 8
    want = silu(x.astype(np.float64))
    run(silu_rows, record(silu_rows, count=np.array([3]), x=whole, n=n), 2)
    assert (whole[:, n:] == 7.25).all()
    assert (abs(x - want) <= 5e-7 * np.maximum(1, abs(want))).all()
