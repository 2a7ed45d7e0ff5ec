"""Convolutions against their float64 twins; the bits depend only on the sequence."""

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
from reference.run_kernel import record, run, same_bits

from hybrid.infer.kernels.recurrent import conv

KERNELS = {"silu": conv.conv1d_silu, "plain": conv.conv1d, "gated": conv.conv1d_gated, "dynamic": conv.conv1d_dynamic}


class Conv:
    """kind: a key of KERNELS. Inputs: x; for 'gated' also the gates before and after, for 'dynamic' taps."""

    def __init__(self, kind: str, channels: int, taps: int, *, bias: bool = True, n_slot: int = N_SLOT) -> None:
        rng = np.random.default_rng(channels * 10 + taps)
        self.kind = kind
        self.w = rng.standard_normal((taps, channels), np.float32)
        self.bias = rng.standard_normal(channels, np.float32) if bias and kind != "dynamic" else None
        self.state = np.full((n_slot, taps - 1, channels), np.nan, np.float32)

    def inputs(self, n: int, seed: int = 0) -> Inputs:
        rng = np.random.default_rng(seed)
        width = self.w.shape[1]
        widths = {"gated": [width] * 3, "dynamic": [width, self.w.size]}.get(self.kind, [width])
        return [rng.standard_normal((n, one), np.float32) * 2 for one in widths]

    def step(self, inputs: Inputs, *rows: tuple[int, int, bool | int], n_threads: int = 1) -> np.ndarray:
        taps, channels = self.w.shape
        batch = Batch(inputs, rows, channels)
        x, *more = batch.inputs
        names = ("w",) if self.kind == "dynamic" else ("before", "after")
        fields = record(
            KERNELS[self.kind],
            ctl=batch.ctl,
            seg=batch.seg,
            x=x,
            bias=self.bias,
            state=self.state,
            stride=self.state.strides[0],
            y=batch.whole,
            n_channel=channels,
            d_conv=taps,
            **{"w": self.w, **dict(zip(names, more, strict=False))},
        )
        run(KERNELS[self.kind], fields, n_threads)
        return batch.result()

    def twin(self, inputs: Inputs) -> tuple[np.ndarray, np.ndarray]:
        taps, channels = self.w.shape
        bias = np.zeros(channels) if self.bias is None else self.bias
        state = np.zeros((taps - 1, channels))
        if self.kind == "dynamic":
            return twin.conv1d_dynamic(inputs[0], inputs[1].reshape(-1, taps, channels), state)
        if self.kind == "gated":
            return twin.conv1d_gated(*inputs, self.w, bias, state)
        return (twin.conv1d_silu if self.kind == "silu" else twin.conv1d)(inputs[0], self.w, bias, state)

    def kept(self, slot: int) -> np.ndarray:
        return self.state[slot]


@pytest.mark.parametrize("taps", [2, 3, 4, 7])
@pytest.mark.parametrize(("channels", "bias"), [(1, True), (23, False), (200, True)])
@pytest.mark.parametrize("kind", KERNELS)
def test_matches_float64(kind: str, channels: int, bias: bool, taps: int) -> None:
    # a gated one has three factors per term, and one rounding before it is kept
    y, state = (4e-6, 1e-7) if kind == "gated" else (1.5e-6, 0.0)
    check_float64(Conv(kind, channels, taps, bias=bias), f"conv {kind} {channels} x {taps}", y=y, state=state)


@pytest.mark.parametrize("taps", [3, 4, 5])
@pytest.mark.parametrize("kind", KERNELS)
def test_same_bits_for_any_split_and_threads(kind: str, taps: int) -> None:
    check_splits_and_threads(lambda: Conv(kind, 147, taps))


@pytest.mark.parametrize("kind", KERNELS)
def test_sequences_do_not_see_each_other(kind: str) -> None:
    check_sequences_together(lambda n_slot: Conv(kind, 37, 4, n_slot=n_slot))


def test_few_taps_and_any_taps_agree() -> None:
    """Four taps with a zero oldest tap equal three taps: the fast path and the general one, bit by bit."""
    four = Conv("plain", 45, 4)
    four.w[0] = 0.0
    three = Conv("plain", 45, 3)
    three.w, three.bias = np.ascontiguousarray(four.w[1:]), four.bias
    inputs = four.inputs(40)
    assert same_bits(four.step(inputs, (40, 0, True)), three.step(inputs, (40, 0, True)))
