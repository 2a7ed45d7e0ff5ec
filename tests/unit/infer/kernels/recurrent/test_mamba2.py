"""Mamba-2's steps and scan against their float64 twins; the bits depend only on the sequence."""

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
from reference.run_kernel import guarded, record, run, same_bits, worst

from hybrid.infer.kernels.recurrent import mamba2
from hybrid.infer.kernels.recurrent import states as recurrent


class Scan:
    """Inputs: x, B and C side by side, delta, decay, and z if there is a gate."""

    def __init__(
        self, n_head: int, d_head: int, d_state: int, n_group: int, *, gated: bool = True, n_slot: int = N_SLOT
    ) -> None:
        rng = np.random.default_rng(n_head * 1000 + d_head * 10 + d_state)
        self.dims, self.gated = (n_head, d_head, d_state, n_group), gated
        self.D = rng.standard_normal(n_head, np.float32)
        self.state = np.full((n_slot, *recurrent.state_shape(n_head, d_head, d_state)), np.nan, np.float32)

    def inputs(self, n: int, seed: int = 0) -> Inputs:
        rng = np.random.default_rng(seed)
        n_head, d_head, d_state, n_group = self.dims
        xbc = rng.standard_normal((n, n_head * d_head + 2 * n_group * d_state), np.float32)
        delta = np.exp(rng.uniform(-7, 1, (n, n_head))).astype(np.float32)
        decay = np.exp(-delta * np.exp(rng.uniform(-2, 3, n_head))).astype(np.float32)
        z = [rng.standard_normal((n, n_head * d_head), np.float32)] if self.gated else []
        return [xbc, delta, decay, *z]

    def step(self, inputs: Inputs, *rows: tuple[int, int, bool | int], n_threads: int = 1) -> np.ndarray:
        n_head, d_head, d_state, n_group = self.dims
        batch = Batch(inputs, rows, n_head * d_head)
        xbc, delta, decay, *z = batch.inputs
        b = xbc.ctypes.data + 4 * n_head * d_head
        fields = record(
            mamba2.mamba2_scan, ctl=batch.ctl, seg=batch.seg, x=xbc, b=b, c=b + 4 * n_group * d_state,
            ld=xbc.strides[0], delta=delta, decay=decay, skip=self.D, z=z[0] if z else None, state=self.state,
            stride=self.state.strides[0], y=batch.whole, n_head=n_head, d_head=d_head, d_state=d_state, n_group=n_group,
        )  # fmt: skip
        run(mamba2.mamba2_scan, fields, n_threads)
        return batch.result()

    def twin(self, inputs: Inputs) -> tuple[np.ndarray, np.ndarray]:
        n_head, d_head, d_state, n_group = self.dims
        xbc, delta, decay, *z = inputs
        n = len(xbc)
        x, bm, cm = np.split(xbc, [n_head * d_head, n_head * d_head + n_group * d_state], axis=1)
        y, state = twin.mamba2_scan(
            x.reshape(n, n_head, d_head),
            delta,
            decay,
            self.D,
            bm.reshape(n, n_group, d_state),
            cm.reshape(n, n_group, d_state),
            z[0].reshape(n, n_head, d_head) if z else None,
            np.zeros((n_head, d_head, d_state)),
        )
        return y.reshape(n, -1), state

    def kept(self, slot: int) -> np.ndarray:
        return recurrent.restore_heads(self.state[slot], self.dims[1])


@pytest.mark.parametrize("gated", [True, False])
@pytest.mark.parametrize(
    ("n_head", "d_head", "d_state", "n_group"),
    [(3, 5, 7, 1), (4, 64, 33, 2), (6, 40, 1, 3), (1, 80, 128, 1), (2, 17, 256, 2)],
)
def test_matches_float64(n_head: int, d_head: int, d_state: int, n_group: int, gated: bool) -> None:
    case = Scan(n_head, d_head, d_state, n_group, gated=gated)
    check_float64(case, f"mamba2 {n_head} x {d_head} x {d_state}", relative_to_state=True)


@pytest.mark.parametrize(("d_head", "d_state"), [(64, 16), (21, 9)])
def test_same_bits_for_any_split_and_threads(d_head: int, d_state: int) -> None:
    check_splits_and_threads(lambda: Scan(6, d_head, d_state, 2))


def test_sequences_do_not_see_each_other() -> None:
    check_sequences_together(lambda n_slot: Scan(3, 37, 16, 1, n_slot=n_slot))


def test_nan_stays_in_its_head() -> None:
    scan = Scan(3, 20, 5, 1)
    inputs = scan.inputs(4)
    inputs[0][2, 25] = np.nan  # head 1, lane 5
    y = scan.step(inputs, (4, 0, True)).reshape(4, 3, 20)
    assert np.isnan(y[2:, 1, 5]).all()
    assert np.isfinite(y[:, [0, 2]]).all() and np.isfinite(y[:, 1, :5]).all()


@pytest.mark.parametrize("n_head", [1, 16, 37])
def test_steps(n_head: int) -> None:
    rng = np.random.default_rng(n_head)
    A, bias = -np.exp(rng.uniform(-2, 3, n_head)).astype(np.float32), rng.uniform(-6, 1, n_head).astype(np.float32)
    dt = (rng.standard_normal((11, n_head)) * 3).astype(np.float32)
    dt[3, 0], dt[4, 0] = 200.0, -200.0
    for low, high in ((0.0, np.inf), (0.01, 0.5)):
        results = []
        for n_threads in (1, 3):
            (whole_delta, delta), (whole_decay, decay) = guarded(dt.shape), guarded(dt.shape, 3)
            fields = record(
                mamba2.mamba2_steps,
                count=np.array([len(dt)]),
                dt=dt,
                dt_bias=bias,
                rate=mamba2.decay_rate(A),
                delta=whole_delta,
                decay=whole_decay,
                n_head=n_head,
                low=float(low),
                high=float(high),
            )
            run(mamba2.mamba2_steps, fields, n_threads)
            assert (whole_delta[:, n_head:] == 7.25).all() and (whole_decay[:, n_head:] == 7.25).all()
            results.append((delta.copy(), decay.copy()))
        want = twin.mamba2_steps(dt, bias, A, low, high)
        for got, exact in zip(results[0], want, strict=True):
            assert worst(got, exact) < 1e-6
        assert all(same_bits(one, other) for one, other in zip(*results, strict=True))
