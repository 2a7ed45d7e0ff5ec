"""Hyper-connections against float64, with odd numbers of streams and values."""

from typing import NamedTuple

import numpy as np
import pytest
from reference.hyper_connections import hyper_weights as expected_weights
from reference.hyper_connections import mixed, unit_rms, written
from reference.run_kernel import guarded, record, run, same_bits, worst

from hybrid.infer.kernels.rows.hyper import hyper_weights, mix_streams, write_streams

SIZES = [(1, 7), (2, 16), (3, 33), (4, 1031), (5, 96), (8, 520)]  # streams, values
N_TOK, EPS, FLOOR = 5, 3e-4, 1e-3
HALF_ULP = 2.0**-24


class Drawn(NamedTuple):
    """Streams with floats after every row, and a product's results for them."""

    whole: np.ndarray
    x: np.ndarray
    product: np.ndarray
    base: np.ndarray
    scale: np.ndarray

    def weights(self, n_stream: int, n_iter: int, n_threads: int = 1) -> np.ndarray:
        size = (2 + n_stream) * n_stream if n_iter else n_stream
        whole, out = guarded((N_TOK, size))
        fields = record(
            hyper_weights,
            count=np.array([N_TOK]),
            x=self.x,
            product=self.product[:, :size],
            base=self.base[:size],
            scale=self.scale,
            out=out,
            n=self.x.shape[1],
            n_stream=n_stream,
            n_iter=n_iter,
            eps=EPS,
            floor=FLOOR,
        )
        run(hyper_weights, fields, n_threads)
        assert (whole[:, size:] == 7.25).all()
        return out.copy()


def drawn(n_stream: int, n: int) -> Drawn:
    rng = np.random.default_rng(n)
    size = (2 + n_stream) * n_stream
    whole, x = guarded((N_TOK, n_stream * n))
    x[...] = 3 * rng.standard_normal(x.shape)
    product, base = 4 * rng.standard_normal((N_TOK, size), np.float32), rng.standard_normal(size, np.float32)
    return Drawn(whole, x, product, base, np.array([1.5, -0.7, 2.3], np.float32))


@pytest.mark.parametrize(("n_stream", "n"), SIZES)
@pytest.mark.parametrize("n_iter", [1, 4, 20])
def test_weights(n_stream: int, n: int, n_iter: int) -> None:
    given = drawn(n_stream, n)
    got = given.weights(n_stream, n_iter)
    x = given.x.astype(np.float64).reshape(N_TOK, n_stream, n)
    norm = np.sqrt((x * x).mean((1, 2)) + EPS)
    np.testing.assert_allclose(unit_rms(x, EPS) * norm[:, None], given.x)  # so that the norm may follow the product
    pre, post, comb = expected_weights(
        given.product / norm[:, None],
        given.base.astype(np.float64),
        given.scale.astype(np.float64),
        n_stream,
        n_iter,
        FLOOR,
    )
    want = np.concatenate([pre, post, comb.reshape(N_TOK, -1)], axis=1)
    assert worst(got, want) < 3e-6
    if n_iter == 20:
        sums = got[:, 2 * n_stream :].reshape(N_TOK, n_stream, n_stream).sum(1)
        assert np.abs(sums - 1).max() < 2 * FLOOR
    assert same_bits(got, given.weights(n_stream, n_iter, 3))
    assert same_bits(got[:, :n_stream], given.weights(n_stream, 0)), "the part for the last collapse"


def test_weights_of_nan_are_nan() -> None:
    given = drawn(3, 33)
    given.product[2] = np.nan
    got = given.weights(3, 4)
    assert np.isnan(got[2]).all()
    assert np.isfinite(np.delete(got, 2, 0)).all()


def test_large_products() -> None:
    """Sigmoids and softmax saturate."""
    given = drawn(4, 96)
    given.product[...] = np.where(given.product > 0, 3e4, -3e4)
    got = given.weights(4, 20)
    assert np.isfinite(got).all()
    assert got.min() >= 0


@pytest.mark.parametrize(("n_stream", "n"), SIZES)
@pytest.mark.parametrize("n_threads", [1, 3])
def test_mix(n_stream: int, n: int, n_threads: int) -> None:
    given = drawn(n_stream, n)
    weights = given.product[:, :n_stream]
    whole, out = guarded((N_TOK, n))
    fields = record(mix_streams, count=np.array([N_TOK]), x=given.x, weights=weights, out=out, n=n, n_stream=n_stream)
    run(mix_streams, fields, n_threads)
    assert (whole[:, n:] == 7.25).all()
    x, weights = given.x.astype(np.float64).reshape(N_TOK, n_stream, n), weights.astype(np.float64)
    # every sum is rounded once, and is at most the sum of absolute values
    assert (np.abs(out - mixed(x, weights)) <= n_stream * HALF_ULP * mixed(abs(x), abs(weights))).all()


def test_mix_with_the_same_weights_is_a_mean() -> None:
    given = drawn(4, 33)
    out, quarter = np.full((N_TOK, 33), np.nan, np.float32), np.full(4, 0.25, np.float32)
    fields = record(
        mix_streams, count=np.array([N_TOK]), x=given.x, weights=quarter, ldweights=0, out=out, n=33, n_stream=4
    )
    run(mix_streams, fields)
    assert worst(out, given.x.astype(np.float64).reshape(N_TOK, 4, 33).mean(1)) < 1e-6


@pytest.mark.parametrize(("n_stream", "n"), SIZES)
@pytest.mark.parametrize("n_threads", [1, 3])
def test_write(n_stream: int, n: int, n_threads: int) -> None:
    given = drawn(n_stream, n)
    post, comb = given.product[:, n_stream : 2 * n_stream], given.product[:, 2 * n_stream :]
    y = np.random.default_rng(1).standard_normal((N_TOK, n + 3), np.float32)[:, :n]
    doubles = [a.astype(np.float64) for a in (given.x.reshape(N_TOK, n_stream, n), y, post)]
    doubles.append(comb.astype(np.float64).reshape(N_TOK, n_stream, n_stream))
    want, sizes = written(*doubles), written(*(abs(a) for a in doubles))
    kernel = write_streams(n_stream)
    run(kernel, record(kernel, count=np.array([N_TOK]), x=given.x, y=y, post=post, comb=comb, n=n), n_threads)
    assert (given.whole[:, n_stream * n :] == 7.25).all()
    error = np.abs(given.x - want.reshape(N_TOK, -1))
    assert (error <= (n_stream + 1) * HALF_ULP * sizes.reshape(N_TOK, -1)).all()
