"""The kernels around RWKV's scans against float64; the bits depend only on the sequence."""

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
        kernel = rwkv.token_shift_difference if self.difference else rwkv.token_shift
        whole, ld = batch.whole, batch.whole.strides[0]
        more = {"difference": whole.ctypes.data + 4 * n_mix * c, "lddifference": ld} if self.difference else {}
        fields = record(
            kernel,
            ctl=batch.ctl,
            seg=batch.seg,
            x=x,
            mu=self.mu,
            n_mix=n_mix,
            state=self.state,
            stride=self.state.strides[0],
            y=whole,
            part=4 * c,
            n_channel=c,
            **more,
        )
        run(kernel, fields, n_threads)
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


def on_rows(kernel: Any, arrays: dict[str, np.ndarray], **more: Any) -> dict[str, np.ndarray]:
    """The arrays after the kernel on 1, 2 and 3 threads (the same bits); NaN after the rows must stay."""
    results = []
    for n_threads in (1, 2, 3):
        copies = {name: guarded(a.shape, 3) for name, a in arrays.items()}
        for name, (_, view) in copies.items():
            view[...] = arrays[name]
        count = np.array([len(next(iter(arrays.values())))])
        wholes = {name: whole for name, (whole, _) in copies.items()}
        run(kernel, record(kernel, count=count, **wholes, **more), n_threads)
        for name, (whole, view) in copies.items():
            assert (whole[:, view.shape[1] :] == 7.25).all(), f"wrote beyond the row of {name}"
        results.append({name: view.copy() for name, (_, view) in copies.items()})
    for other in results[1:]:
        assert all(same_bits(results[0][name], other[name]) for name in arrays)
    return results[0]


@pytest.mark.parametrize("n", [5, 160, 1030])
def test_functions_of_rows(n: int) -> None:
    rng = np.random.default_rng(n)
    x, bias = (rng.standard_normal((4, n)) * 3).astype(np.float32), rng.standard_normal(n).astype(np.float32)
    x[0, :3] = (100.0, -100.0, 0.0)
    wide = x.astype(np.float64)
    for kernel, more, want in (
        (rwkv.tanh_rows, {}, np.tanh(wide)),
        (rwkv.sigmoid_rows, {}, sigmoid(wide)),
        (rwkv.decay_rows, {"bias": bias}, np.exp(-np.exp(np.minimum(wide + bias, 87)))),
    ):
        assert worst(on_rows(kernel, {"x": x}, n=n, **more)["x"], want) < 1e-6, kernel


def test_mix_rows() -> None:
    rng = np.random.default_rng(0)
    x, d, y, mu = (rng.standard_normal((3, 37)).astype(np.float32) for _ in range(4))
    mixed = y.copy()
    run(rwkv.mix_rows, record(rwkv.mix_rows, count=np.array([3]), x=x, difference=d, mu=mu[0], y=mixed, n=37), 2)
    assert worst(mixed, x.astype(np.float64) + d * (mu[0].astype(np.float64) + y)) < 1e-6


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize(("n_head", "d"), [(3, 7), (5, 64), (1, 21)])
def test_prepare(n_head: int, d: int, is_first: bool) -> None:
    rng = np.random.default_rng(d)
    n, width = 5, n_head * d
    names = ("r", "k", "v", "w", "rate", "kk", "mix", "first")
    rows = {name: rng.standard_normal((n, width)).astype(np.float32) for name in names}
    rows["k"][2, :d] = 0.0  # a key of norm 0
    rows["kk"][...] = np.nan
    names = ("w0", "a0", "v0", "k_k", "k_a", "r_k")
    per = {name: rng.standard_normal(width).astype(np.float32) for name in names}
    kernel = rwkv.wkv7_prepare_first if is_first else rwkv.wkv7_prepare
    dots = np.full((n, 3 * n_head), np.nan, np.float32)
    given = [{name: a for name, a in arrays.items() if kernel.layout.find(name)} for arrays in (rows, per)]
    got = on_rows(kernel, given[0], ld=4 * (width + 3), dots=dots, **given[1], n_head=n_head, d=d)
    r, k, v, w, a, _, mix, first = (x.astype(np.float64).reshape(n, n_head, d) for x in rows.values())
    w0, a0, v0, k_k, k_a, r_k = (x.astype(np.float64).reshape(n_head, d) for x in per.values())
    kk = k * k_k
    kk = kk / np.maximum(np.sqrt((kk**2).sum(-1, keepdims=True)), 1e-12)
    gate = sigmoid(a + a0)
    key, decay = k * (1 + (gate - 1) * k_a), np.exp(-np.exp(-0.5) * sigmoid(w + w0))
    value = v if is_first else v + (first - v) * sigmoid(mix + v0)
    wanted = {"r": r * decay, "k": key, "v": value, "w": decay, "rate": kk * gate, "kk": kk}
    for name, want in wanted.items():
        assert worst(got[name], want.reshape(n, -1)) < 1e-6, name
    sums = np.stack([(r * key).sum(-1), (r * kk * gate).sum(-1), (r * key * r_k).sum(-1)], axis=-1)
    assert worst(dots, sums.reshape(n, -1)) < 2e-6


@pytest.mark.parametrize(("n_head", "d"), [(3, 7), (5, 64)])
def test_output(n_head: int, d: int) -> None:
    rng = np.random.default_rng(d)
    n, width = 5, n_head * d
    y, gate, v = (rng.standard_normal((n, width)).astype(np.float32) for _ in range(3))
    weight, bias = (rng.standard_normal(width).astype(np.float32) for _ in range(2))
    dots = rng.standard_normal((n, 3 * n_head)).astype(np.float32)
    norm = {"weight": weight, "bias": bias, "eps": 1e-3}
    bonus_of, size = {"v": v, "dots": dots}, {"n_head": n_head, "d": d}
    normed = twin.layer_norm(
        y.astype(np.float64).reshape(n, n_head, d), weight.reshape(n_head, d), bias.reshape(n_head, d), 1e-3
    )
    six = on_rows(rwkv.wkv6_output, {"y": y, "gate": gate}, **norm, **size)["y"]
    assert worst(six, normed.reshape(n, -1) * silu(gate.astype(np.float64))) < 2e-6
    bonus = dots.reshape(n, n_head, 3)[:, :, 2:] * v.reshape(n, n_head, d).astype(np.float64)
    for (is_gated, is_normed), kernel in rwkv.WKV7_OUTPUT.items():
        rows = {"y": y, "gate": gate} if is_gated else {"y": y}
        got = on_rows(kernel, rows, **(norm if is_normed else {}), **bonus_of, **size)["y"]
        want = ((normed if is_normed else y.reshape(n, n_head, d)) + bonus).reshape(n, -1)
        assert worst(got, want * gate if is_gated else want) < 2e-6, kernel


@pytest.mark.parametrize(("n_head", "repeat", "d"), [(6, 3, 7), (2, 1, 40)])
def test_gla_keys(n_head: int, repeat: int, d: int) -> None:
    rng = np.random.default_rng(d)
    k = rng.standard_normal((5, n_head // repeat * d)).astype(np.float32)
    w, out = rng.uniform(0, 1, (5, n_head * d)).astype(np.float32), np.zeros((5, n_head * d), np.float32)
    got = on_rows(rwkv.gla_keys, {"k": k, "w": w, "out": out}, n_head=n_head, repeat=repeat, d=d)["out"]
    shared = np.repeat(k.astype(np.float64).reshape(5, -1, d), repeat, axis=1).reshape(5, -1)
    assert worst(got, shared * (1 - w)) < 1e-6
