"""The recurrences of RWKV against their float64 twins; the bits depend only on the sequence."""

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
from reference import rwkv as twin
from reference.recurrent import sigmoid
from reference.run_kernel import record, run

from hybrid.infer.kernels.recurrent import states as recurrent
from hybrid.infer.kernels.recurrent import wkv

SCALE = 0.375


class Wkv:
    """Inputs: r, k, v and w side by side; of RWKV-7 r w, k, v, w, kk a and kk, then the dot products. RWKV-5
    has no w there. Version 0: gated linear attention."""

    def __init__(self, version: int, n_head: int, d: int, *, n_slot: int = N_SLOT) -> None:
        self.version, self.n_head, self.d = version, n_head, d
        self.u = np.random.default_rng(d).standard_normal((n_head, d)).astype(np.float32)
        self.w = np.random.default_rng(d + 1).uniform(0.5, 1, (n_head, d)).astype(np.float32)
        self.state = np.full((n_slot, *recurrent.state_shape(n_head, d, d)), np.nan, np.float32)

    def inputs(self, n: int, seed: int = 0) -> Inputs:
        rng = np.random.default_rng(seed)
        shape = (n, self.n_head, self.d)
        r, k, v = (rng.standard_normal(shape) / self.d**0.5 for _ in range(3))
        w = np.exp(-np.exp(-0.5) * sigmoid(rng.standard_normal(shape)))
        parts = [r, k, v] if self.version == 5 else [r, k, v, w]
        if self.version == 7:
            kk = rng.standard_normal(shape)
            kk /= np.sqrt((kk**2).sum(-1, keepdims=True))
            a = kk * sigmoid(rng.standard_normal(shape))
            dots = np.stack([(r * k).sum(-1), (r * a).sum(-1), rng.standard_normal(shape[:2])], axis=-1)
            parts = [r * w, k, v, w, a, kk]
        rows = [np.concatenate([part.reshape(n, -1) for part in parts], axis=1)]
        if self.version == 7:
            rows.append(dots.reshape(n, -1))
        return [a.astype(np.float32) for a in rows]

    def step(self, inputs: Inputs, *rows: tuple[int, int, bool | int], n_threads: int = 1) -> np.ndarray:
        width = self.n_head * self.d
        batch = Batch(inputs, rows, width)
        whole, *dots = batch.inputs
        kernel = {0: wkv.gla_scan, 5: wkv.wkv5_scan, 6: wkv.wkv6_scan, 7: wkv.wkv7_scan}[self.version]
        names = ("r", "k", "v", "w", "rate", "kk")[: {5: 3, 7: 6}.get(self.version, 4)]
        parts = {name: whole.ctypes.data + 4 * width * i for i, name in enumerate(names)}
        own = {
            0: {"scale": SCALE, "ldv": whole.strides[0]},
            5: {"w": self.w, "u": self.u, "ldv": whole.strides[0]},
            6: {"u": self.u, "ldv": whole.strides[0]},
            7: {"dots": dots[0] if dots else None},
        }[self.version]
        fields = record(
            kernel,
            ctl=batch.ctl,
            seg=batch.seg,
            **parts,
            ld=whole.strides[0],
            **own,
            state=self.state,
            stride=self.state.strides[0],
            y=batch.whole,
            n_head=self.n_head,
            d=self.d,
        )
        run(kernel, fields, n_threads)
        return batch.result()

    def twin(self, inputs: Inputs) -> tuple[np.ndarray, np.ndarray]:
        n, empty = len(inputs[0]), np.zeros((self.n_head, self.d, self.d))
        parts = inputs[0].astype(np.float64).reshape(n, -1, self.n_head, self.d)
        if self.version == 0:
            y, state = twin.gla(*(parts[:, i] for i in range(4)), SCALE, empty)
        elif self.version == 5:
            w = np.broadcast_to(self.w, parts[:, 0].shape)
            y, state = twin.wkv6(*(parts[:, i] for i in range(3)), w, self.u, empty)
        elif self.version == 6:
            y, state = twin.wkv6(*(parts[:, i] for i in range(4)), self.u, empty)
        else:
            rw, k, v, w, back, kk = (parts[:, i] for i in range(6))
            y, state = twin.wkv7(rw / w, k, v, w, kk, back / kk, empty)
        return y.reshape(n, -1), state.transpose(0, 2, 1)

    def kept(self, slot: int) -> np.ndarray:
        return recurrent.restore_heads(self.state[slot], self.d)


@pytest.mark.parametrize("version", [0, 5, 6, 7])
@pytest.mark.parametrize(("n_head", "d"), [(3, 7), (2, 64), (5, 1), (2, 40)])
def test_matches_float64(version: int, n_head: int, d: int) -> None:
    check_float64(Wkv(version, n_head, d), f"wkv{version} {n_head} x {d}", 151)


@pytest.mark.parametrize("version", [0, 5, 6, 7])
@pytest.mark.parametrize("d", [16, 21])
def test_same_bits_for_any_split_and_threads(version: int, d: int) -> None:
    check_splits_and_threads(lambda: Wkv(version, 4, d))


@pytest.mark.parametrize("version", [0, 5, 6, 7])
def test_sequences_do_not_see_each_other(version: int) -> None:
    check_sequences_together(lambda n_slot: Wkv(version, 3, 19, n_slot=n_slot))
