"""The recurrence of RWKV-4 against its float64 twin; the bits depend only on the sequence."""

import numpy as np
import pytest
from recurrent_checks import (
    N_SLOT,
    Batch,
    Inputs,
    check_float64,
    check_other_slots_untouched,
    check_sequences_together,
    check_splits_and_threads,
)
from reference import rwkv as twin
from reference.run_kernel import record, run, worst

from hybrid.infer.kernels.recurrent import states as recurrent
from hybrid.infer.kernels.recurrent.wkv4 import DEPTH, wkv4_scan


class Wkv4:
    """Inputs: k, v."""

    def __init__(self, channels: int, n_slot: int = N_SLOT) -> None:
        rng = np.random.default_rng(channels)
        self.u = rng.standard_normal(channels, np.float32)
        self.w = -np.exp(rng.standard_normal(channels, np.float32) - 1)
        self.state = np.full((n_slot, *recurrent.state_shape(1, channels, DEPTH)), np.nan, np.float32)

    def inputs(self, n: int, seed: int = 0) -> Inputs:
        rng = np.random.default_rng(seed)
        return [rng.standard_normal((n, len(self.u)), np.float32) * scale for scale in (3, 1)]

    def step(self, inputs: Inputs, *rows: tuple[int, int, bool | int], n_threads: int = 1) -> np.ndarray:
        batch = Batch(inputs, rows, len(self.u))
        k, v = batch.inputs
        fields = record(
            wkv4_scan, ctl=batch.ctl, seg=batch.seg, k=k, v=v, u=recurrent.pad_channels(self.u),
            w=recurrent.pad_channels(self.w), state=self.state, stride=self.state.strides[0], y=batch.whole,
            n_channel=len(self.u),
        )  # fmt: skip
        run(wkv4_scan, fields, n_threads)
        return batch.result()

    def twin(self, inputs: Inputs) -> tuple[np.ndarray, np.ndarray]:
        k, v = (a.astype(np.float64) for a in inputs)
        return twin.wkv4(k, v, self.w.astype(np.float64), self.u.astype(np.float64), np.zeros((2, len(self.u))))

    def kept(self, slot: int) -> np.ndarray:
        """The sums, without their common factor exp(-m)."""
        total, count, most = recurrent.restore_heads(self.state[slot], len(self.u))[0].astype(np.float64).T
        return np.stack([total, count]) * np.exp(most)


@pytest.mark.parametrize("channels", [1, 19, 64, 200])
def test_matches_float64(channels: int) -> None:
    # m, up to 13, is rounded by up to 5e-7 for every token
    check_float64(Wkv4(channels), f"wkv4 {channels}", 63, y=1e-5, state=np.exp(13) * 1e-5)


def test_keys_whose_exponentials_overflow_or_vanish() -> None:
    case = Wkv4(21)
    inputs = case.inputs(40)
    inputs[0][:3] -= 300.0
    inputs[0][7:] += 250.0
    inputs[0][20, ::2] = -1e9
    got = np.concatenate([case.step([a[s:e] for a in inputs], (e - s, 2, s == 0)) for s, e in ((0, 9), (9, 40))])
    k, v = (a.astype(np.float64) for a in inputs)
    for t in range(40):
        exponents = np.stack([*(k[i] + (t - 1 - i) * case.w for i in range(t)), case.u + k[t]])
        weights = np.exp(exponents - exponents.max(axis=0))
        assert worst(got[t], (weights * v[: t + 1]).sum(axis=0) / weights.sum(axis=0)) < 2e-4  # m is up to 300
    check_other_slots_untouched(case, 2)


def test_nan_stays_in_its_channel() -> None:
    case = Wkv4(20)
    inputs = case.inputs(5)
    inputs[0][2, 17] = np.nan
    y = case.step(inputs, (5, 0, True))
    assert np.isnan(y[2:, 17]).all()
    assert np.isfinite(y[:2]).all() and np.isfinite(np.delete(y, 17, axis=1)).all()


def test_same_bits_for_any_split_and_threads() -> None:
    check_splits_and_threads(lambda: Wkv4(147))


def test_sequences_do_not_see_each_other() -> None:
    check_sequences_together(lambda n_slot: Wkv4(37, n_slot))
