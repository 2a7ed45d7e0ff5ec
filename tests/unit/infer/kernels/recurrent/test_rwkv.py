"""What stands around RWKV's scans against float64; bits that depend on nothing but the sequence itself."""

from typing import Any

import numpy as np
import pytest
from recurrent_checks import N_SLOT, Batch, Inputs, check_sequences_together, check_splits_and_threads
from reference import rwkv as twin
from reference.recurrent import sigmoid, silu
from reference.run_kernel import guarded, record, run, same_bits, worst

from hybrid.infer.kernels.recurrent import rwkv


class Shift:
    """Inputs: x."""

    def __init__(self, channels: int, n_mix: int, *, difference: bool = False, n_slot: int = N_SLOT) -> None:
        self.channels, self.difference = channels, difference
        self.mu = np.random.default_rng(n_mix).standard_normal((n_mix, channels)).astype(np.float32)
        self.state = np.full((n_slot, channels), np.nan, np.float32)

    def inputs(self, n: int, seed: int = 0) -> Inputs:
        return [np.random.default_rng(seed).standard_normal((n, self.channels)).astype(np.float32)]

    def step(self, inputs: Inputs, *rows: tuple[int, int, bool | int], n_threads: int = 1) -> np.ndarray:
        n_mix, c = self.mu.shape
        batch = Batch(inputs, rows, (n_mix + self.difference) * c)
        (x,) = batch.inputs
        fields = record(
            batch.ctl, batch.seg, x, x.strides[0], self.mu, n_mix, self.state, self.state.strides[0], batch.whole,
            batch.whole.strides[0], 4 * c, c, batch.counter, batch.whole.ctypes.data + 4 * n_mix * c,
            batch.whole.strides[0],
        )  # fmt: skip
        run(rwkv.token_shift_difference if self.difference else rwkv.token_shift, fields, n_threads)
        return batch.result()


@pytest.mark.parametrize(("channels", "n_mix", "difference"), [(1, 1, True), (21, 6, False), (200, 2, True)])
def test_token_shift(channels: int, n_mix: int, difference: bool) -> None:
    case = Shift(channels, n_mix, difference=difference)
    (x,) = case.inputs(40)
    got = case.step([x], (40, 1, True))
    wide = x.astype(np.float64)
    d = twin.token_shift(wide, np.zeros(channels)) - wide
    want = [wide + d * mu for mu in case.mu] + [d] * difference
    assert worst(got, np.concatenate(want, axis=1)) < 1e-6
    assert same_bits(case.state[1], x[-1])
    assert np.isnan(case.state[[0, 2, 3]]).all()


def test_token_shift_in_parts() -> None:
    check_splits_and_threads(lambda: Shift(147, 3))
    check_sequences_together(lambda n_slot: Shift(37, 2, difference=True, n_slot=n_slot))


def on_rows(kernel: Any, arrays: list[np.ndarray], *more: Any, shared: bool = False) -> list[np.ndarray]:
    """The arrays after the kernel on 1, 2 and 3 threads (the same bits); NaN beyond the rows, which nobody touches.
    `shared`: one stride for all that have the first one's width."""
    results = []
    for n_threads in (1, 2, 3):
        pairs = [guarded(a.shape, 3) for a in arrays]
        for (_, view), a in zip(pairs, arrays, strict=True):
            view[...] = a
        fields: list[Any] = [np.array([len(arrays[0])])]
        for whole, _ in pairs:
            fields += [whole] if shared and whole.shape == pairs[0][0].shape else [whole, whole.strides[0]]
        run(kernel, record(*fields, *more), n_threads)
        for (whole, view), a in zip(pairs, arrays, strict=True):
            assert (whole[:, a.shape[1] :] == 7.25).all(), "wrote beyond the row"
            assert view.shape == a.shape
        results.append([view.copy() for _, view in pairs])
    for other in results[1:]:
        assert all(same_bits(one, two) for one, two in zip(results[0], other, strict=True))
    return results[0]


@pytest.mark.parametrize("n", [5, 160, 1030])
def test_functions_of_rows(n: int) -> None:
    rng = np.random.default_rng(n)
    x, bias = (rng.standard_normal((4, n)) * 3).astype(np.float32), rng.standard_normal(n).astype(np.float32)
    x[0, :3] = (100.0, -100.0, 0.0)
    wide = x.astype(np.float64)
    for kernel, want in (
        (rwkv.tanh_rows, np.tanh(wide)),
        (rwkv.sigmoid_rows, sigmoid(wide)),
        (rwkv.decay_rows, np.exp(-np.exp(np.minimum(wide + bias, 87)))),
    ):
        (got,) = on_rows(kernel, [x], n, bias)
        assert worst(got, want) < 1e-6, kernel


def test_mix_rows() -> None:
    rng = np.random.default_rng(0)
    x, d, y, mu = (rng.standard_normal((3, 37)).astype(np.float32) for _ in range(4))
    fields = (np.array([3]), x, 148, d, 148, mu[0], y.copy(), 148, 37)
    run(rwkv.mix_rows, record(*fields), 2)
    assert worst(fields[6], x.astype(np.float64) + d * (mu[0].astype(np.float64) + y)) < 1e-6


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize(("n_head", "d"), [(3, 7), (5, 64), (1, 21)])
def test_prepare(n_head: int, d: int, is_first: bool) -> None:
    rng = np.random.default_rng(d)
    n, width = 5, n_head * d
    rows = [rng.standard_normal((n, width)).astype(np.float32) for _ in range(8)]
    rows[1][2, :d] = 0.0  # a key of norm 0
    rows[5][...] = np.nan
    per = [rng.standard_normal(width).astype(np.float32) for _ in range(6)]
    kernel = rwkv.wkv7_prepare_first if is_first else rwkv.wkv7_prepare
    stride = 4 * (width + 3)
    dots = np.full((n, 3 * n_head), np.nan, np.float32)
    more = (stride, dots, dots.strides[0], *per, n_head, d)
    got = on_rows(kernel, rows, *more, shared=True)
    r, k, v, w, a, _, mix, first = (x.astype(np.float64).reshape(n, n_head, d) for x in rows)
    w0, a0, v0, k_k, k_a, r_k = (x.astype(np.float64).reshape(n_head, d) for x in per)
    kk = k * k_k
    kk = kk / np.maximum(np.sqrt((kk**2).sum(-1, keepdims=True)), 1e-12)
    gate = sigmoid(a + a0)
    key, decay = k * (1 + (gate - 1) * k_a), np.exp(-np.exp(-0.5) * sigmoid(w + w0))
    value = v if is_first else v + (first - v) * sigmoid(mix + v0)
    for one, want in zip(got, (r * decay, key, value, decay, kk * gate, kk), strict=False):
        assert worst(one, want.reshape(n, -1)) < 1e-6
    sums = np.stack([(r * key).sum(-1), (r * kk * gate).sum(-1), (r * key * r_k).sum(-1)], axis=-1)
    assert worst(dots, sums.reshape(n, -1)) < 2e-6


@pytest.mark.parametrize(("n_head", "d"), [(3, 7), (5, 64)])
def test_output(n_head: int, d: int) -> None:
    rng = np.random.default_rng(d)
    n, width = 5, n_head * d
    y, gate, v = (rng.standard_normal((n, width)).astype(np.float32) for _ in range(3))
    weight, bias = (rng.standard_normal(width).astype(np.float32) for _ in range(2))
    dots = rng.standard_normal((n, 3 * n_head)).astype(np.float32)
    more = (weight, bias, v, v.strides[0], dots, dots.strides[0], n_head, d, 1e-3)
    normed = twin.layer_norm(
        y.astype(np.float64).reshape(n, n_head, d), weight.reshape(n_head, d), bias.reshape(n_head, d), 1e-3
    )
    six, _ = on_rows(rwkv.wkv6_output, [y, gate], *more)
    assert worst(six, normed.reshape(n, -1) * silu(gate.astype(np.float64))) < 2e-6
    bonus = dots.reshape(n, n_head, 3)[:, :, 2:] * v.reshape(n, n_head, d).astype(np.float64)
    for (is_gated, is_normed), kernel in rwkv.WKV7_OUTPUT.items():
        got, _ = on_rows(kernel, [y, gate], *more)
        want = ((normed if is_normed else y.reshape(n, n_head, d)) + bonus).reshape(n, -1)
        assert worst(got, want * gate if is_gated else want) < 2e-6, kernel


@pytest.mark.parametrize(("n_head", "repeat", "d"), [(6, 3, 7), (2, 1, 40)])
def test_gla_keys(n_head: int, repeat: int, d: int) -> None:
    rng = np.random.default_rng(d)
    k = rng.standard_normal((5, n_head // repeat * d)).astype(np.float32)
    w, out = rng.uniform(0, 1, (5, n_head * d)).astype(np.float32), np.zeros((5, n_head * d), np.float32)
    _, _, got = on_rows(rwkv.gla_keys, [k, w, out], n_head, repeat, d)
    shared = np.repeat(k.astype(np.float64).reshape(5, -1, d), repeat, axis=1).reshape(5, -1)
    assert worst(got, shared * (1 - w)) < 1e-6
