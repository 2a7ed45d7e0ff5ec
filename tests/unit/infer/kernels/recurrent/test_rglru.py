"""RG-LRU against its float64 twin; the bits depend only on the sequence."""

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

from hybrid.infer.kernels.recurrent import rglru
from hybrid.infer.kernels.recurrent import states as recurrent


class Lru:
    """Inputs: x, r, i."""

    def __init__(self, channels: int, *, bias: bool = True, n_slot: int = N_SLOT) -> None:
        rng = np.random.default_rng(channels)
        # as initialised in the paper: a^8 between 0.9 and 0.999, so that 1 - a^2 is small
        self.param = np.log(np.expm1(-np.log(rng.uniform(0.9, 0.999, channels)) / 2)).astype(np.float32)
        self.r_bias, self.i_bias = (rng.standard_normal(channels, np.float32) if bias else None for _ in range(2))
        self.state = np.full((n_slot, *recurrent.state_shape(1, channels, 1)), np.nan, np.float32)

    def inputs(self, n: int, seed: int = 0) -> Inputs:
        rng = np.random.default_rng(seed)
        return [rng.standard_normal((n, len(self.param)), np.float32) * scale for scale in (1, 3, 3)]

    def step(self, inputs: Inputs, *rows: tuple[int, int, bool | int], n_threads: int = 1) -> np.ndarray:
        batch = Batch(inputs, rows, len(self.param))
        x, r, i = batch.inputs
        fields = record(
            rglru.rg_lru,
            ctl=batch.ctl,
            seg=batch.seg,
            x=x,
            gate_r=r,
            bias_r=self.r_bias,
            gate_i=i,
            bias_i=self.i_bias,
            rate=rglru.lru_rate(self.param),
            state=self.state,
            stride=self.state.strides[0],
            y=batch.whole,
            n_channel=len(self.param),
        )
        run(rglru.rg_lru, fields, n_threads)
        return batch.result()

    def twin(self, inputs: Inputs) -> tuple[np.ndarray, np.ndarray]:
        x, r, i = inputs
        zero = np.zeros(len(self.param))
        r_bias, i_bias = (zero if bias is None else bias for bias in (self.r_bias, self.i_bias))
        rate = -8.0 * twin.softplus(self.param.astype(np.float64))
        return twin.rg_lru(x, r, r_bias, i, i_bias, rate, zero, fresh=True)

    def kept(self, slot: int) -> np.ndarray:
        return recurrent.restore_heads(self.state[slot], len(self.param))[0, :, 0]


@pytest.mark.parametrize(("channels", "bias"), [(1, True), (19, False), (200, True)])
def test_matches_float64(channels: int, bias: bool) -> None:
    check_float64(Lru(channels, bias=bias), f"rg_lru {channels}")


def test_the_root_is_exact_for_slow_channels() -> None:
    """1 - a^2 is 1e-7: subtracting in f32 would lose every digit."""
    case = Lru(16, bias=False)
    case.param[:] = np.log(np.expm1(0.5e-7))
    inputs = case.inputs(2)
    inputs[1][:], inputs[2][:] = 0.0, 30.0
    inputs[0][0] = 0.0
    y = case.step(inputs, (2, 0, True))
    np.testing.assert_allclose(y[1], np.sqrt(-np.expm1(-8 * 0.5e-7)) * inputs[0][1], rtol=1e-5)


def test_first_token_is_not_scaled() -> None:
    case = Lru(20, bias=False)
    inputs = case.inputs(1)
    inputs[2][:] = 40.0  # the input gate is open
    assert same_bits(case.step(inputs, (1, 0, True)), inputs[0])


def test_same_bits_for_any_split_and_threads() -> None:
    check_splits_and_threads(lambda: Lru(147))


def test_sequences_do_not_see_each_other() -> None:
    check_sequences_together(lambda n_slot: Lru(37, n_slot=n_slot))
