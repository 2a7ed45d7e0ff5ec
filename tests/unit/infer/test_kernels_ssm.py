"""Convolution and scan against their float64 twins; bits that depend on nothing but the sequence itself."""

from itertools import pairwise

import numpy as np
import pytest
from hybrid.infer.kernels import ssm
from reference import ssm as twin
from reference.run_kernel import guarded, record, run, same_bits, segments, worst

N_SLOT = 4


class Conv:
    """Weights and state memory of a layer; `step` runs one batch."""

    def __init__(self, channels: int, taps: int, n_slot: int = N_SLOT) -> None:
        rng = np.random.default_rng(channels * 10 + taps)
        self.w = rng.standard_normal((taps, channels), np.float32)
        self.bias = rng.standard_normal(channels, np.float32)
        self.state = np.full((n_slot, taps - 1, channels), np.nan, np.float32)
        assert self.state[0].nbytes == ssm.conv_state_bytes(channels, taps)

    def step(self, x: np.ndarray, *rows: tuple[int, int, bool], n_threads: int = 1) -> np.ndarray:
        ctl, seg = segments(*rows)
        whole_x, xs = guarded(x.shape)
        whole_y, y = guarded(x.shape, 3)
        xs[...] = x
        counter = np.zeros(1, np.int64)
        fields = record(
            ctl, seg, whole_x, whole_x.strides[0], self.w, self.bias, self.state, self.state.strides[0],
            whole_y, whole_y.strides[0], x.shape[1], self.w.shape[0], counter,
        )  # fmt: skip
        run(ssm.conv1d_silu, fields, n_threads)
        assert (whole_y[:, x.shape[1] :] == 7.25).all(), "wrote beyond the channels"
        return y.copy()


class Scan:
    """Weights and state memory of a Mamba-1 layer; `step` runs one batch of inputs x, dt, B, C, z."""

    def __init__(self, channels: int, d_state: int, n_slot: int = N_SLOT) -> None:
        rng = np.random.default_rng(channels * 1000 + d_state)
        self.A = -np.exp(rng.uniform(-2, 3, (channels, d_state))).astype(np.float32)
        self.D = rng.standard_normal(channels, np.float32)
        self.dt_bias = rng.uniform(-5, 0, channels).astype(np.float32)
        self.state = np.full((n_slot, ssm.n_groups(channels), d_state, 16), np.nan, np.float32)
        assert self.state[0].nbytes == ssm.scan_state_bytes(channels, d_state)

    def inputs(self, n: int, seed: int = 0) -> list[np.ndarray]:
        rng = np.random.default_rng(seed)
        channels, d_state = self.A.shape
        return [rng.standard_normal((n, w), np.float32) for w in (channels, channels, d_state, d_state, channels)]

    def step(self, inputs: list[np.ndarray], *rows: tuple[int, int, bool], n_threads: int = 1) -> np.ndarray:
        ctl, seg = segments(*rows)
        buffers = []
        for i, a in enumerate(inputs):
            whole, view = guarded(a.shape, i)
            view[...] = a
            buffers.append(whole)
        x, dt, bm, cm, z = buffers
        whole_y, y = guarded(inputs[0].shape, 7)
        decay, skip = ssm.scan_decay(self.A), ssm.pad_channels(self.D)
        counter = np.zeros(1, np.int64)
        fields = record(
            ctl, seg, x, x.strides[0], dt, dt.strides[0], self.dt_bias, decay, skip, bm, bm.strides[0],
            cm, cm.strides[0], z, z.strides[0], self.state, self.state.strides[0], whole_y, whole_y.strides[0],
            self.A.shape[0], self.A.shape[1], counter,
        )  # fmt: skip
        run(ssm.mamba1_scan, fields, n_threads)
        assert (whole_y[:, self.A.shape[0] :] == 7.25).all(), "wrote beyond the channels"
        return y.copy()


def cuts(n: int, rng: np.random.Generator) -> list[int]:
    inner = np.sort(rng.choice(np.arange(1, n), min(n - 1, int(rng.integers(1, 9))), replace=False))
    return [0, *inner.tolist(), n]


@pytest.mark.parametrize("d_state", [1, 7, 16])
@pytest.mark.parametrize("channels", [1, 19, 48])
def test_channel_layout_is_undone(channels: int, d_state: int) -> None:
    a = np.random.default_rng(0).standard_normal((channels, d_state), np.float32)
    arranged = ssm.arrange_channels(a)
    assert arranged.shape == (-(-channels // 16), d_state, 16)
    assert arranged[(channels - 1) // 16, d_state - 1, (channels - 1) % 16] == a[-1, -1]
    assert same_bits(ssm.restore_channels(arranged, channels), a)


@pytest.mark.parametrize("taps", [2, 3, 4, 7])
@pytest.mark.parametrize("channels", [1, 23, 200])
def test_conv_matches_float64(channels: int, taps: int) -> None:
    conv = Conv(channels, taps)
    x = np.random.default_rng(1).standard_normal((63, channels), np.float32) * 2
    first, second = conv.step(x[:41], (41, 2, True)), conv.step(x[41:], (22, 2, False))
    want, state = twin.conv1d_silu(x, conv.w, conv.bias, np.zeros((taps - 1, channels)))
    error = worst(np.concatenate([first, second]), want)
    print(f"conv {channels} x {taps}: error {error:.1e}")
    assert error < 1.5e-6
    assert same_bits(conv.state[2], state.astype(np.float32))
    assert np.isnan(conv.state[[0, 1, 3]]).all(), "touched the state of another slot"


@pytest.mark.parametrize("taps", [4, 5])
def test_conv_same_bits_for_any_split_and_threads(taps: int) -> None:
    channels, n = 147, 63
    x = np.random.default_rng(2).standard_normal((n, channels), np.float32)
    whole = Conv(channels, taps)
    y = whole.step(x, (n, 0, True))
    for seed in range(6):
        rng = np.random.default_rng(seed)
        split, edges = Conv(channels, taps), cuts(n, rng)
        parts = [split.step(x[s:e], (e - s, 3, s == 0), n_threads=1 + seed % 3) for s, e in pairwise(edges)]
        assert same_bits(np.concatenate(parts), y), edges
        assert same_bits(split.state[3], whole.state[0])


def test_conv_sequences_do_not_see_each_other() -> None:
    channels, lengths = 37, [1, 17, 2, 40]
    x = np.random.default_rng(3).standard_normal((sum(lengths), channels), np.float32)
    slots = [2, 0, 3, 1]
    together = Conv(channels, 4)
    y = together.step(x, *[(n, s, True) for n, s in zip(lengths, slots, strict=True)], n_threads=2)
    first = 0
    for n, s in zip(lengths, slots, strict=True):
        alone = Conv(channels, 4)
        assert same_bits(alone.step(x[first : first + n], (n, 0, True)), y[first : first + n])
        assert same_bits(alone.state[0], together.state[s])
        first += n


@pytest.mark.parametrize("d_state", [1, 7, 16, 65])
@pytest.mark.parametrize("channels", [3, 16, 53])
def test_scan_matches_float64(channels: int, d_state: int) -> None:
    scan = Scan(channels, d_state)
    inputs = scan.inputs(63)
    first = scan.step([a[:40] for a in inputs], (40, 1, True))
    second = scan.step([a[40:] for a in inputs], (23, 1, False))
    x, dt, bm, cm, z = inputs
    want, state = twin.mamba1_scan(
        x, dt, scan.dt_bias, scan.A, scan.D, bm, cm, z, np.zeros((channels, d_state))
    )  # fmt: skip
    error = worst(np.concatenate([first, second]), want)
    drift = worst(ssm.restore_channels(scan.state[1], channels), state)
    print(f"scan {channels} x {d_state}: error {error:.1e}, state {drift:.1e}")
    assert error < 4e-6
    assert drift < 2e-6
    assert np.isnan(scan.state[[0, 2, 3]]).all(), "touched the state of another slot"


@pytest.mark.parametrize("d_state", [16, 7])
def test_scan_same_bits_for_any_split_and_threads(d_state: int) -> None:
    channels, n = 211, 63
    whole = Scan(channels, d_state)
    inputs = whole.inputs(n)
    y = whole.step(inputs, (n, 0, True))
    for seed in range(6):
        rng = np.random.default_rng(seed)
        split, edges = Scan(channels, d_state), cuts(n, rng)
        parts = [
            split.step([a[s:e] for a in inputs], (e - s, 2, s == 0), n_threads=1 + seed % 3) for s, e in pairwise(edges)
        ]
        assert same_bits(np.concatenate(parts), y), edges
        assert same_bits(split.state[2], whole.state[0])


def test_scan_sequences_do_not_see_each_other() -> None:
    channels, lengths, slots = 37, [1, 17, 2, 40], [2, 0, 3, 1]
    together = Scan(channels, 16)
    inputs = together.inputs(sum(lengths))
    y = together.step(inputs, *[(n, s, True) for n, s in zip(lengths, slots, strict=True)], n_threads=2)
    first = 0
    for n, s in zip(lengths, slots, strict=True):
        alone = Scan(channels, 16)
        assert same_bits(alone.step([a[first : first + n] for a in inputs], (n, 0, True)), y[first : first + n])
        assert same_bits(alone.state[0], together.state[s])
        first += n


def test_scan_extremes() -> None:
    """A step size that overflows exp, one that underflows, and a NaN that must stay visible."""
    scan = Scan(16, 5)
    inputs = scan.inputs(4)
    inputs[1][0], inputs[1][1] = 200.0, -200.0
    y = scan.step(inputs, (4, 0, True))
    x, dt, bm, cm, z = inputs
    want, _ = twin.mamba1_scan(x, dt, scan.dt_bias, scan.A, scan.D, bm, cm, z, np.zeros((16, 5)))
    assert worst(y, want) < 4e-6
    inputs[1][2, 3] = np.nan
    y = scan.step(inputs, (4, 0, True))
    assert np.isnan(y[2:, 3]).all()
    assert np.isfinite(y[:, :3]).all() and np.isfinite(y[:, 4:]).all()
