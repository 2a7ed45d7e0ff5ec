"""The selective scan against its float64 twin; the bits depend only on the sequence."""

import numpy as np
import pytest
from recurrent_checks import (
    N_SLOT,
    Batch,
    Inputs,
    check_float64,
    check_sequences_together,
    check_splits_and_threads,
)
from reference import recurrent as twin
from reference.run_kernel import record, run, worst

from hybrid.infer.kernels.recurrent import mamba1
from hybrid.infer.kernels.recurrent import states as recurrent


class Scan:
    """Inputs: x, dt, B, C, z."""

    def __init__(self, channels: int, d_state: int, n_slot: int = N_SLOT) -> None:
        rng = np.random.default_rng(channels * 1000 + d_state)
        self.A = -np.exp(rng.uniform(-2, 3, (channels, d_state))).astype(np.float32)
        self.D = rng.standard_normal(channels, np.float32)
        self.dt_bias = rng.uniform(-5, 0, channels).astype(np.float32)
        self.state = np.full((n_slot, *recurrent.state_shape(1, channels, d_state)), np.nan, np.float32)

    def inputs(self, n: int, seed: int = 0) -> Inputs:
        rng = np.random.default_rng(seed)
        channels, d_state = self.A.shape
        return [rng.standard_normal((n, w), np.float32) for w in (channels, channels, d_state, d_state, channels)]

    def step(self, inputs: Inputs, *rows: tuple[int, int, bool | int], n_threads: int = 1) -> np.ndarray:
        batch = Batch(inputs, rows, self.A.shape[0])
        x, dt, bm, cm, z = batch.inputs
        fields = record(
            mamba1.mamba1_scan, ctl=batch.ctl, seg=batch.seg, x=x, dt=dt, dt_bias=self.dt_bias,
            decay=mamba1.scan_decay(self.A), skip=recurrent.pad_channels(self.D), b=bm, c=cm, z=z, state=self.state,
            stride=self.state.strides[0], y=batch.whole, n_channel=self.A.shape[0], d_state=self.A.shape[1],
        )  # fmt: skip
        run(mamba1.mamba1_scan, fields, n_threads)
        return batch.result()

    def twin(self, inputs: Inputs) -> tuple[np.ndarray, np.ndarray]:
        x, dt, bm, cm, z = inputs
        return twin.mamba1_scan(x, dt, self.dt_bias, self.A, self.D, bm, cm, z, np.zeros(self.A.shape))

    def kept(self, slot: int) -> np.ndarray:
        return recurrent.restore_heads(self.state[slot], len(self.A))[0]


@pytest.mark.parametrize("d_state", [1, 7, 16, 65])
@pytest.mark.parametrize("channels", [3, 16, 53])
def test_matches_float64(channels: int, d_state: int) -> None:
    check_float64(Scan(channels, d_state), f"mamba1 {channels} x {d_state}", y=4e-6, state=2e-6)


@pytest.mark.parametrize("d_state", [16, 7])
def test_same_bits_for_any_split_and_threads(d_state: int) -> None:
    check_splits_and_threads(lambda: Scan(211, d_state))


def test_sequences_do_not_see_each_other() -> None:
    check_sequences_together(lambda n_slot: Scan(37, 16, n_slot))


def test_extremes() -> None:
    """A step size that overflows exp, one that underflows, and a NaN that must stay visible."""
    scan = Scan(16, 5)
    inputs = scan.inputs(4)
    inputs[1][0], inputs[1][1] = 200.0, -200.0
    y = scan.step(inputs, (4, 0, True))
    want, _ = scan.twin(inputs)
    assert worst(y, want) < 4e-6
    inputs[1][2, 3] = np.nan
    y = scan.step(inputs, (4, 0, True))
    assert np.isnan(y[2:, 3]).all()
    assert np.isfinite(y[:, :3]).all() and np.isfinite(y[:, 4:]).all()


class Ungated(Scan):
    """The scan's output before a gate, from the kernel without one."""

    def step(self, inputs: Inputs, *rows: tuple[int, int, bool | int], n_threads: int = 1) -> np.ndarray:
        batch = Batch(inputs, rows, self.A.shape[0])
        x, dt, bm, cm, _ = batch.inputs
        fields = record(
            mamba1.mamba1_scan_ungated, ctl=batch.ctl, seg=batch.seg, x=x, dt=dt, dt_bias=self.dt_bias,
            decay=mamba1.scan_decay(self.A), skip=recurrent.pad_channels(self.D), b=bm, c=cm, state=self.state,
            stride=self.state.strides[0], y=batch.whole, n_channel=self.A.shape[0], d_state=self.A.shape[1],
        )  # fmt: skip
        run(mamba1.mamba1_scan_ungated, fields, n_threads)
        return batch.result()

    def twin(self, inputs: Inputs) -> tuple[np.ndarray, np.ndarray]:
        open_gate = 1e3  # whose silu it is
        y, state = super().twin([*inputs[:4], np.full_like(inputs[4], open_gate)])
        return y / open_gate, state


@pytest.mark.parametrize(("channels", "d_state"), [(3, 7), (53, 16)])
def test_without_a_gate(channels: int, d_state: int) -> None:
    check_float64(Ungated(channels, d_state), f"ungated mamba1 {channels} x {d_state}", y=6e-6, state=2e-6)
    check_splits_and_threads(lambda: Ungated(channels, d_state))
