"""A convolution at several last tokens at once, against the float64 convolution of the same tokens."""

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
from reference.convolved_attention import convolve
from reference.run_kernel import record, run

from hybrid.infer.kernels.recurrent.conv_windows import conv1d_windows


class Windows:
    def __init__(self, channels: int, taps: int, n_window: int, n_slot: int = N_SLOT) -> None:
        rng = np.random.default_rng(channels * 10 + taps)
        self.w = rng.standard_normal((taps, channels), np.float32)
        self.bias = rng.standard_normal(channels, np.float32)
        self.n_window = n_window
        self.state = np.full((n_slot, taps + n_window - 2, channels), np.nan, np.float32)

    def inputs(self, n: int, seed: int = 0) -> Inputs:
        return [np.random.default_rng(seed).standard_normal((n, self.w.shape[1]), np.float32) * 2]

    def step(self, inputs: Inputs, *rows: tuple[int, int, bool | int], n_threads: int = 1) -> np.ndarray:
        taps, channels = self.w.shape
        batch = Batch(inputs, rows, self.n_window * channels)
        fields = record(
            conv1d_windows,
            ctl=batch.ctl,
            seg=batch.seg,
            x=batch.inputs[0],
            w=self.w,
            bias=self.bias,
            state=self.state,
            stride=self.state.strides[0],
            y=batch.whole,
            part=4 * channels,
            n_channel=channels,
            d_conv=taps,
            n_window=self.n_window,
        )
        run(conv1d_windows, fields, n_threads)
        return batch.result()

    def twin(self, inputs: Inputs) -> tuple[np.ndarray, np.ndarray]:
        n_kept, channels = self.state.shape[1:]
        padded = np.concatenate([np.zeros((n_kept, channels)), inputs[0].astype(np.float64)])
        at = convolve(padded, self.w.T[:, None].astype(np.float64), self.bias, n_group=channels)
        n = len(inputs[0])
        return np.concatenate([at[j : j + n] for j in range(self.n_window)], axis=1), padded[n:]

    def kept(self, slot: int) -> np.ndarray:
        return self.state[slot]


@pytest.mark.parametrize(("taps", "n_window"), [(1, 2), (2, 1), (2, 2), (3, 4)])
@pytest.mark.parametrize("channels", [1, 23, 200])
def test_matches_float64(channels: int, taps: int, n_window: int) -> None:
    check_float64(Windows(channels, taps, n_window), f"{channels} x {taps}, {n_window}", y=1.5e-6, state=0.0)


@pytest.mark.parametrize(("taps", "n_window"), [(1, 3), (3, 1), (3, 4)])
def test_same_bits_for_any_split_and_threads(taps: int, n_window: int) -> None:
    check_splits_and_threads(lambda: Windows(147, taps, n_window))


def test_sequences_do_not_see_each_other() -> None:
    check_sequences_together(lambda n_slot: Windows(37, 3, 2, n_slot))
