"""The inputs of lightning attention's scan, and the scan as used there, against float64 twins."""

import numpy as np
import pytest
from reference.minimax import lightning
from reference.recurrent import silu
from reference.run_kernel import record, run, same_bits, worst

from hybrid.infer.kernels.recurrent.lightning import lightning_inputs
from hybrid.infer.kernels.recurrent.mamba2 import mamba2_scan
from hybrid.infer.kernels.recurrent.states import restore_heads, state_shape
from hybrid.infer.layers.lightning import decay_rates


def prepared(x: np.ndarray, n_head: int, d: int, n_threads: int = 1) -> np.ndarray:
    """x [tok, head, 3, d]; every row is followed by one column that must stay unwritten."""
    count, out = np.array([len(x)], np.int64), np.full((len(x), 3 * n_head * d + 1), np.nan, np.float32)
    fields = record(
        lightning_inputs, count=count, x=x, ldx=x.strides[0], out=out, ldout=out.strides[0], n_head=n_head, d=d
    )
    run(lightning_inputs, fields, n_threads)
    assert np.isnan(out[:, -1]).all()
    return out[:, :-1]


@pytest.mark.parametrize(("n_head", "d"), [(3, 5), (1, 16), (2, 37)])
def test_inputs_match_float64(n_head: int, d: int) -> None:
    x = 4 * np.random.default_rng(d).standard_normal((7, n_head, 3, d), np.float32)
    x[3, 0, 1, 0] = -200.0
    want = silu(x.astype(np.float64))[:, :, ::-1].transpose(0, 2, 1, 3).reshape(7, -1)  # values, keys, queries
    got = prepared(x, n_head, d)
    print(f"lightning_inputs {n_head} x {d}: {worst(got, want):.1e}")
    assert worst(got, want) < 5e-7
    assert same_bits(got, prepared(x, n_head, d, n_threads=3))


def test_the_scan_of_mamba2_is_lightning_attention() -> None:
    n, n_head, d = 63, 3, 21
    x = np.random.default_rng(1).standard_normal((n, n_head, 3, d), np.float32)
    rows = np.ascontiguousarray(prepared(x, n_head, d))
    decay = np.exp(-decay_rates(n_head, 1, 4)).astype(np.float32)
    ctl, counter = np.array([n, 1, n], np.int64), np.zeros(1, np.int64)
    seg, state = np.array([[0, n, 0, -1]], np.int64), np.full((1, *state_shape(n_head, d, d)), np.nan, np.float32)
    y, one, width = np.empty((n, n_head * d), np.float32), np.ones(n_head, np.float32), 4 * n_head * d
    fields = record(
        mamba2_scan, ctl=ctl, seg=seg, x=rows, b=rows.ctypes.data + width, c=rows.ctypes.data + 2 * width,
        ld=rows.strides[0], delta=one, lddelta=0, decay=decay, lddecay=0, skip=np.zeros(n_head, np.float32), z=0,
        ldz=0, state=state, stride=state.strides[0], y=y, ldy=y.strides[0], n_head=n_head, d_head=d, d_state=d,
        n_group=n_head, counter=counter,
    )  # fmt: skip
    run(mamba2_scan, fields, 1)
    v, k, q = rows.astype(np.float64).reshape(n, 3, n_head, d).transpose(1, 0, 2, 3)
    want = lightning(q, k, v, decay.astype(np.float64)).reshape(n, -1)
    print(f"lightning attention: {worst(y, want):.1e} of {np.abs(want).max():.0f}")
    assert np.abs(y - want).max() < 1e-6 * np.abs(want).max()
    assert np.isfinite(restore_heads(state[0], d)).all()


@pytest.mark.parametrize("n_head", [1, 4, 64])
def test_rates(n_head: int) -> None:
    first, last = decay_rates(n_head, 0, 80), decay_rates(n_head, 79, 80)
    assert first[-1] == pytest.approx(2**-8, rel=2e-5) and first[0] == pytest.approx(2 ** (-8 / n_head), rel=2e-5)
    assert 0 < last.max() < 2e-5 * first.max()
    assert decay_rates(n_head, 0, 1) == pytest.approx(first)  # a model of one layer
