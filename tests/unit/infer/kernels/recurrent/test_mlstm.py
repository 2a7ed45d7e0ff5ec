"""The kernels around the mLSTM's scan against float64 twins; the bits depend only on the sequence."""

import numpy as np
import pytest
from recurrent_checks import (
    N_SLOT,
    Batch,
    Inputs,
    check_other_slots_untouched,
    check_sequences_together,
    check_splits_and_threads,
)
from reference import xlstm as twin
from reference.recurrent import sigmoid
from reference.run_kernel import guarded, record, run, same_bits, worst

from hybrid.infer.kernels.recurrent import mlstm

CAP = 15.0


class Gates:
    """Inputs: i and f; outputs: gain, decay and low side by side."""

    def __init__(self, n_head: int, n_slot: int = N_SLOT) -> None:
        rng = np.random.default_rng(n_head)
        self.n_head = n_head
        self.i_bias, self.f_bias = (rng.standard_normal(n_head, np.float32) for _ in range(2))
        self.state = np.full((n_slot, n_head), np.nan, np.float32)

    def inputs(self, n: int, seed: int = 0) -> Inputs:
        rng = np.random.default_rng(seed)
        return [rng.standard_normal((n, self.n_head), np.float32) * scale for scale in (4, 6)]

    def step(self, inputs: Inputs, *rows: tuple[int, int, bool | int], n_threads: int = 1) -> np.ndarray:
        n = self.n_head
        batch = Batch(inputs, rows, 3 * n)
        i, f = batch.inputs
        out, ld = batch.whole.ctypes.data, batch.whole.strides[0]
        fields = record(
            mlstm.mlstm_gates, ctl=batch.ctl, seg=batch.seg, gate_i=i, bias_i=self.i_bias, gate_f=f, bias_f=self.f_bias,
            cap=float(CAP), state=self.state, stride=self.state.strides[0], gain=out, ldgain=ld, decay=out + 4 * n,
            lddecay=ld, low=out + 8 * n, ldlow=ld, n_head=n,
        )  # fmt: skip
        run(mlstm.mlstm_gates, fields, n_threads)
        return batch.result()


@pytest.mark.parametrize("n_head", [1, 8, 37])
def test_gates_match_float64(n_head: int) -> None:
    case = Gates(n_head)
    inputs = case.inputs(63)
    inputs[0][5], inputs[1][7], inputs[1][9] = -200.0, -200.0, 200.0
    first = case.step([a[:40] for a in inputs], (40, 1, True))
    second = case.step([a[40:] for a in inputs], (23, 1, False))
    *want, m = twin.mlstm_gates(inputs[0] + case.i_bias, inputs[1] + case.f_bias, CAP, np.zeros(n_head))
    got = np.split(np.concatenate([first, second]), 3, axis=1)
    # exp(-m) for m of -15 is 3e6: m's own rounding remains
    errors = [
        np.abs(g / w - 1).max() if name == "low" else worst(g, w)
        for name, g, w in zip(("gain", "decay", "low"), got, want, strict=True)
    ]
    print(f"mlstm_gates {n_head}: {', '.join(f'{error:.1e}' for error in errors)}, m {worst(case.state[1], m):.1e}")
    assert max(errors) < 5e-6
    assert worst(case.state[1], m) < 1e-6
    check_other_slots_untouched(case, 1)


def test_same_bits_for_any_split_and_threads() -> None:
    check_splits_and_threads(lambda: Gates(19))


def test_sequences_do_not_see_each_other() -> None:
    check_sequences_together(lambda n_slot: Gates(5, n_slot))


def test_nan_stays_in_its_head() -> None:
    case = Gates(3)
    inputs = case.inputs(4)
    inputs[0][2, 1] = np.nan
    y = case.step(inputs, (4, 0, True)).reshape(4, 3, 3)
    assert np.isnan(y[2, 0, 1])
    assert np.isfinite(y[:, :, [0, 2]]).all() and np.isfinite(y[:2]).all()


def test_inputs_are_put_side_by_side() -> None:
    n_head, d_k, d_v, rng = 3, 5, 7, np.random.default_rng(1)
    v, k, q = (rng.standard_normal((4, n_head * d), np.float32) for d in (d_v, d_k, d_k))
    whole, out = guarded((4, n_head * (d_v + 1) + 2 * n_head * d_k))
    fields = record(mlstm.mlstm_inputs, count=np.array([4]), v=v, k=k, q=q, out=whole, n_head=n_head, d_k=d_k, d_v=d_v)
    run(mlstm.mlstm_inputs, fields, 3)
    with_ones = np.concatenate([v.reshape(4, n_head, d_v), np.ones((4, n_head, 1), np.float32)], axis=2)
    np.testing.assert_array_equal(out, np.concatenate([with_ones.reshape(4, -1), k, q], axis=1))
    assert (whole[:, out.shape[1] :] == 7.25).all()


@pytest.mark.parametrize(("n_head", "d"), [(1, 16), (3, 7), (4, 33)])
def test_output(n_head: int, d: int) -> None:
    rng = np.random.default_rng(d)
    y, low = rng.standard_normal((5, n_head, d + 1), np.float32), np.exp(rng.standard_normal((5, n_head), np.float32))
    gate, weight = rng.standard_normal((5, n_head * d), np.float32), rng.standard_normal((n_head, d), np.float32)
    results = []
    for n_threads in (1, 2, 3):
        whole, out = guarded((5, n_head * d))
        fields = record(
            mlstm.mlstm_output,
            count=np.array([5]),
            y=y,
            low=low,
            gate=gate,
            weight=weight,
            out=whole,
            n_head=n_head,
            d=d,
            eps=1e-6,
            norm_eps=1e-5,
        )
        run(mlstm.mlstm_output, fields, n_threads)
        assert (whole[:, n_head * d :] == 7.25).all()
        results.append(out.copy())
    exact = y.astype(np.float64)
    h = exact[:, :, :d] / (np.maximum(np.abs(exact[:, :, d]), low) + 1e-6)[:, :, None]
    want = twin.head_norm(h, weight, 1e-5).reshape(5, -1) * sigmoid(gate.astype(np.float64))
    assert worst(results[0], want) < 2e-6
    assert same_bits(results[0], results[1]) and same_bits(results[0], results[2])
