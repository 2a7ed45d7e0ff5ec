"""Rotary embedding, cache and attention against their float64 twins; bits that depend on the sequence only."""

from itertools import pairwise

import numpy as np
import pytest
from hybrid.infer.kernels import attention as kernels
from reference import attention as twin
from reference.run_kernel import guarded, record, run, same_bits, worst

N_SLOT = 3


class Layer:
    """The cache of one attention layer; `step` stores a batch's keys and values and attends."""

    def __init__(self, n_head: int, n_kv: int, d_head: int, n_ctx: int, window: int = 0) -> None:
        self.n_head, self.n_kv, self.d_head, self.window = n_head, n_kv, d_head, window
        self.n_ctx = kernels.padded_context(n_ctx)
        self.scale = d_head**-0.5
        self.k = np.full((N_SLOT, n_kv, self.n_ctx // 16, d_head, 16), np.nan, np.float32)
        self.v = np.full((N_SLOT, n_kv, self.n_ctx, d_head), np.nan, np.float32)
        assert self.k[0].nbytes == self.v[0].nbytes == kernels.kv_bytes(n_ctx, n_kv, d_head)

    def inputs(self, n: int, seed: int = 0) -> list[np.ndarray]:
        rng = np.random.default_rng(seed)
        q = rng.standard_normal((n, self.n_head, self.d_head), np.float32) * 3
        k, v = (rng.standard_normal((n, self.n_kv, self.d_head), np.float32) for _ in range(2))
        return [q, k, v]

    def step(self, inputs: list[np.ndarray], *rows: tuple[int, int, int], n_threads: int = 1) -> np.ndarray:
        """rows: (n tokens, slot, first position) of each sequence."""
        n = inputs[0].shape[0]
        ctl = np.array([n, len(rows), 0], np.int64)
        pos = np.concatenate([np.arange(p, p + m) for m, _, p in rows]).astype(np.int64)
        slot = np.concatenate([np.full(m, s) for m, s, _ in rows]).astype(np.int64)
        q, k, v = (guarded((n, a[0].size), i)[0] for i, a in enumerate(inputs))
        for whole, a in zip((q, k, v), inputs, strict=True):
            whole[:, : a[0].size] = a.reshape(n, -1)
        run(
            kernels.kv_store,
            record(ctl, pos, slot, k, k.strides[0], v, v.strides[0], self.k, self.v, self.k.strides[0],
                   self.v.strides[0], self.n_kv, self.d_head, self.n_ctx),
            n_threads,
        )  # fmt: skip
        whole, out = guarded((n, self.n_head * self.d_head), 6)
        scratch = np.full((n_threads, kernels.attention_scratch_bytes(self.d_head) // 4), np.nan, np.float32)
        guard = np.full(64, 3.5, np.float32)
        memory = np.concatenate([scratch.ravel(), guard])
        fields = record(
            ctl, pos, slot, q, q.strides[0], self.k, self.v, self.k.strides[0], self.v.strides[0],
            whole, whole.strides[0], self.n_head, self.n_kv, self.d_head, np.float32(self.scale), self.n_ctx,
            memory, scratch.strides[0], np.zeros(1, np.int64), self.window,
        )  # fmt: skip
        counter = np.zeros(1, np.int64)
        fields[18] = counter.ctypes.data
        run(kernels.attention, fields, n_threads)
        assert (memory[-64:] == 3.5).all(), "wrote beyond the scratch"
        assert (whole[:, out.shape[1] :] == 7.25).all(), "wrote beyond the rows"
        return out.reshape(n, self.n_head, self.d_head).copy()


SHAPES = [(1, 1, 16), (3, 3, 5), (6, 2, 16), (5, 1, 80), (20, 1, 32), (7, 1, 33), (70, 1, 8), (8, 2, 128)]


@pytest.mark.parametrize(("n_head", "n_kv", "d_head"), SHAPES)
def test_attention_matches_float64(n_head: int, n_kv: int, d_head: int) -> None:
    layer = Layer(n_head, n_kv, d_head, 211)
    inputs = layer.inputs(163)
    parts = [layer.step([a[s:e] for a in inputs], (e - s, 1, s)) for s, e in ((0, 61), (61, 62), (62, 163))]
    q, k, v = inputs
    want = twin.attention(q, k, v, np.arange(163), layer.scale)
    error = worst(np.concatenate(parts), want)
    print(f"attention {n_head}/{n_kv} x {d_head}: error {error:.1e}")
    assert error < 6e-6
    assert np.isnan(layer.v[[0, 2]]).all() and np.isnan(layer.k[[0, 2]]).all(), "touched another slot"


@pytest.mark.parametrize("window", [1, 5, 64, 100])
def test_window(window: int) -> None:
    layer = Layer(6, 2, 21, 211, window)
    inputs = layer.inputs(163)
    y = np.concatenate([layer.step([a[s:e] for a in inputs], (e - s, 1, s)) for s, e in ((0, 70), (70, 163))])
    q, k, v = inputs
    error = worst(y, twin.attention(q, k, v, np.arange(163), layer.scale, window))
    print(f"window {window}: error {error:.1e}")
    assert error < 3e-6
    single = Layer(6, 2, 21, 211, window)
    one = [single.step([a[t : t + 1] for a in inputs], (1, 0, t), n_threads=1 + t % 3) for t in range(163)]
    assert same_bits(np.concatenate(one), y)


@pytest.mark.parametrize(("n_head", "n_kv", "d_head"), [(3, 3, 21), (20, 1, 16), (8, 2, 80), (5, 1, 7)])
def test_same_bits_for_any_split_and_threads(n_head: int, n_kv: int, d_head: int) -> None:
    n = 150
    whole = Layer(n_head, n_kv, d_head, n)
    inputs = whole.inputs(n)
    y = whole.step(inputs, (n, 0, 0))
    for seed in range(6):
        rng = np.random.default_rng(seed)
        edges = [0, *np.sort(rng.choice(np.arange(1, n), 7, replace=False)).tolist(), n]
        if seed == 0:
            edges = list(range(n + 1))
        split = Layer(n_head, n_kv, d_head, n)
        parts = [
            split.step([a[s:e] for a in inputs], (e - s, 2, s), n_threads=1 + seed % 3) for s, e in pairwise(edges)
        ]
        assert same_bits(np.concatenate(parts), y), edges


def test_sequences_do_not_see_each_other() -> None:
    lengths, slots = [33, 1, 70], [2, 0, 1]
    together = Layer(6, 2, 16, 128)
    inputs = together.inputs(sum(lengths))
    y = together.step(inputs, *[(n, s, 0) for n, s in zip(lengths, slots, strict=True)], n_threads=2)
    more = together.inputs(3, seed=9)
    z = together.step(more, *[(1, s, n) for n, s in zip(lengths, slots, strict=True)], n_threads=3)
    first = 0
    for i, n in enumerate(lengths):
        alone = Layer(6, 2, 16, 128)
        assert same_bits(alone.step([a[first : first + n] for a in inputs], (n, 1, 0)), y[first : first + n])
        assert same_bits(alone.step([a[i : i + 1] for a in more], (1, 1, n)), z[i : i + 1])
        first += n


def test_the_future_cannot_leak() -> None:
    """Inf and NaN in later tokens of the same call, and in the memory behind them, change nothing before them."""
    clean, dirty = Layer(2, 1, 16, 96), Layer(2, 1, 16, 96)
    inputs = clean.inputs(80)
    y = clean.step(inputs, (80, 0, 0))
    for a in inputs[1:]:
        a[50] = np.inf
        a[51:] = np.nan
    z = dirty.step(inputs, (80, 0, 0))
    assert same_bits(z[:50], y[:50])
    assert np.isnan(z[51:]).all(), "a NaN in keys and values must stay visible"


def test_large_and_equal_scores() -> None:
    """Scores of +-1000 neither overflow nor lose the average of equal keys."""
    layer = Layer(1, 1, 16, 70)
    q, k, v = layer.inputs(70)
    q[...] = 100.0
    k[...] = 2.5
    y = layer.step([q, k, v], (70, 0, 0))
    want = np.cumsum(v[:, 0].astype(np.float64), 0) / np.arange(1, 71)[:, None]
    assert worst(y[:, 0], want) < 1e-6
    k[3] = 250.0
    y = layer.step([q, k, v], (70, 0, 0))
    assert worst(y[3:, 0], np.repeat(v[3].astype(np.float64), 67, 0)) < 1e-6


@pytest.mark.parametrize("style", [kernels.NORM, kernels.NEOX])
@pytest.mark.parametrize(("n_head", "d_head", "n_rot"), [(3, 38, 38), (5, 64, 64), (2, 21, 10), (300, 6, 4)])
def test_rope(style: int, n_head: int, d_head: int, n_rot: int) -> None:
    n = 63
    rng = np.random.default_rng(0)
    x = rng.standard_normal((n, n_head, d_head), np.float32)
    factors = rng.uniform(0.5, 8, n_rot // 2)
    pos = rng.integers(0, 500, n).astype(np.int64)
    table = kernels.rope_table(500, n_rot, 10000.0, 0.5, factors)
    assert table.shape == (500, n_rot // 2, 2)
    want = twin.rope(x, pos, n_rot, 10000.0, 0.5, factors, style == kernels.NEOX)
    results = []
    for threads in (1, 2, 3):
        whole, rows = guarded((n, n_head * d_head))
        rows[...] = x.reshape(n, -1)
        ctl, counter = np.array([n, 1, 0], np.int64), np.zeros(1, np.int64)
        run(
            kernels.rope,
            record(ctl, pos, whole, whole.strides[0], n_head, d_head, n_rot, table, style, counter),
            threads,
        )
        assert (whole[:, n_head * d_head :] == 7.25).all()
        results.append(rows.reshape(x.shape).copy())
    error = worst(results[0], want)
    print(f"rope {style} {n_head} x {d_head} ({n_rot}): error {error:.1e}")
    assert error < 4e-7
    assert same_bits(results[0], results[1]) and same_bits(results[0], results[2])
