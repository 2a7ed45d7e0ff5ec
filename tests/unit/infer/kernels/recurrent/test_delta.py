"""The gated delta rule against its float64 twins; the bits depend only on the sequence."""

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

from hybrid.infer.kernels.recurrent import delta
from hybrid.infer.kernels.recurrent import states as recurrent


class Delta:
    """Inputs: q, k and v side by side, gate, beta. Head h reads k head (h // repeat) % n_k_head."""

    def __init__(
        self,
        n_head: int,
        n_k_head: int,
        d_k: int,
        d_v: int,
        *,
        per_channel: bool,
        repeat: int = 1,
        n_slot: int = N_SLOT,
    ) -> None:
        self.dims, self.repeat = (n_head, n_k_head, d_k, d_v), repeat
        self.n_channel = d_k if per_channel else 1
        self.state = np.full((n_slot, *recurrent.state_shape(n_head, d_v, d_k)), np.nan, np.float32)

    def inputs(self, n: int, seed: int = 0) -> Inputs:
        rng = np.random.default_rng(seed)
        n_head, n_k_head, d_k, d_v = self.dims
        q, k = (twin.l2_norm(rng.standard_normal((n, n_k_head, d_k)), 1e-6).reshape(n, -1) for _ in range(2))
        qkv = np.concatenate([q / np.sqrt(d_k), k, rng.standard_normal((n, n_head * d_v))], axis=1)
        gate, beta = rng.uniform(0.3, 1, (n, n_head * self.n_channel)), rng.uniform(0, 1, (n, n_head))
        return [a.astype(np.float32) for a in (qkv, gate, beta)]

    def step(self, inputs: Inputs, *rows: tuple[int, int, bool | int], n_threads: int = 1) -> np.ndarray:
        n_head, n_k_head, d_k, d_v = self.dims
        batch = Batch(inputs, rows, n_head * d_v)
        qkv, gate, beta = batch.inputs
        k = qkv.ctypes.data + 4 * n_k_head * d_k
        fields = record(
            delta.delta_scan, ctl=batch.ctl, seg=batch.seg, q=qkv, k=k, v=k + 4 * n_k_head * d_k, ld=qkv.strides[0],
            gate=gate, beta=beta, state=self.state, stride=self.state.strides[0], y=batch.whole, n_head=n_head,
            n_k_head=n_k_head, repeat=self.repeat, d_k=d_k, d_v=d_v, n_channel=self.n_channel,
        )  # fmt: skip
        run(delta.delta_scan, fields, n_threads)
        return batch.result()

    def twin(self, inputs: Inputs) -> tuple[np.ndarray, np.ndarray]:
        n_head, n_k_head, d_k, d_v = self.dims
        qkv, gate, beta = (a.astype(np.float64) for a in inputs)
        n = len(qkv)
        q, k, v = np.split(qkv, [n_k_head * d_k, 2 * n_k_head * d_k], axis=1)
        of = [h // self.repeat % n_k_head for h in range(n_head)]
        y, state = twin.delta_rule(
            q.reshape(n, n_k_head, d_k)[:, of],
            k.reshape(n, n_k_head, d_k)[:, of],
            v.reshape(n, n_head, d_v),
            gate.reshape(n, n_head, self.n_channel),
            beta,
            np.zeros((n_head, d_k, d_v)),
        )
        return y.reshape(n, -1), state.transpose(0, 2, 1)

    def kept(self, slot: int) -> np.ndarray:
        return recurrent.restore_heads(self.state[slot], self.dims[-1])


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize(
    ("n_head", "n_k_head", "repeat", "d_k", "d_v"),
    [(3, 3, 1, 7, 5), (4, 2, 2, 33, 64), (4, 2, 1, 32, 40), (6, 2, 3, 1, 17), (1, 1, 1, 128, 80)],
)
def test_matches_float64(n_head: int, n_k_head: int, repeat: int, d_k: int, d_v: int, per_channel: bool) -> None:
    check_float64(
        Delta(n_head, n_k_head, d_k, d_v, per_channel=per_channel, repeat=repeat), f"delta {n_head} x {d_k} x {d_v}"
    )


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize(("d_k", "d_v"), [(16, 64), (9, 21)])
def test_same_bits_for_any_split_and_threads(d_k: int, d_v: int, per_channel: bool) -> None:
    check_splits_and_threads(lambda: Delta(4, 2, d_k, d_v, per_channel=per_channel, repeat=2))


def test_sequences_do_not_see_each_other() -> None:
    check_sequences_together(lambda n_slot: Delta(3, 3, 8, 37, per_channel=False, n_slot=n_slot))


def test_a_zero_gate_forgets() -> None:
    case = Delta(2, 2, 9, 20, per_channel=False)
    inputs = case.inputs(30)
    inputs[1][20] = 0.0
    y = case.step(inputs, (30, 0, True))
    fresh = case.step([a[20:] for a in inputs], (10, 1, True))
    np.testing.assert_allclose(y[20:], fresh, atol=1e-7)


@pytest.mark.parametrize("lowest", [0.0, -4.5])
@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize(("n_head", "n_k_head", "d_k"), [(4, 2, 7), (33, 11, 48), (6, 3, 160)])
def test_prepare(n_head: int, n_k_head: int, d_k: int, per_channel: bool, lowest: float) -> None:
    """lowest: lower bound of the exponent, for gates that have one."""
    rng = np.random.default_rng(d_k)
    n, n_channel = 5, d_k if per_channel else 1
    A = (np.exp(rng.uniform(-2, 3, n_head)) * (1 if lowest else -1)).astype(np.float32)
    rate = np.repeat(A, n_channel) if lowest else delta.decay_rates(A, n_channel)
    bias = rng.uniform(-6, 1, n_head * n_channel).astype(np.float32)
    widths = (2 * n_k_head * d_k, n_head * n_channel, n_head)
    inputs = [(rng.standard_normal((n, width)) * 3).astype(np.float32) for width in widths]
    inputs[0][2, :d_k] = 0.0
    results = []
    for n_threads in (1, 2, 3):
        padded = [guarded(a.shape, 3) for a in inputs]
        for (_, view), a in zip(padded, inputs, strict=True):
            view[...] = a
        qk, gate, beta = (whole for whole, _ in padded)
        fields = record(
            delta.delta_prepare, count=np.array([n]), q=qk, k=qk.ctypes.data + 4 * n_k_head * d_k, ld=qk.strides[0],
            gate=gate, beta=beta, gate_bias=bias, rate=rate, n_k_head=n_k_head, d_k=d_k,
            n_gate=n_head * n_channel, n_head=n_head, eps=1e-6, scale=float(1 / np.sqrt(d_k)),
            floor=float(lowest * np.log2(np.e)),
        )  # fmt: skip
        run(delta.delta_prepare, fields, n_threads)
        for (whole, _), a in zip(padded, inputs, strict=True):
            assert (whole[:, a.shape[1] :] == 7.25).all(), "wrote beyond the row"
        results.append([view.copy() for _, view in padded])
    qk, gate, beta = (a.astype(np.float64) for a in inputs)
    normal = twin.l2_norm(qk.reshape(n, 2, n_k_head, d_k), 1e-6)
    normal[:, 0] /= np.sqrt(d_k)
    want = [
        normal.reshape(n, -1),
        np.exp(
            lowest * twin.sigmoid(np.repeat(A, n_channel) * (gate + bias))
            if lowest
            else np.repeat(A, n_channel) * twin.softplus(gate + bias)
        ),
        twin.sigmoid(beta),
    ]
    for got, exact in zip(results[0], want, strict=True):
        assert worst(got, exact) < 1e-6
    for other in results[1:]:
        assert all(same_bits(one, two) for one, two in zip(results[0], other, strict=True))
