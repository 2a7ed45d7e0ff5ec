"""Rotary positions on three axes."""

import numpy as np
from reference.run_kernel import record, run, same_bits

from hybrid.infer.kernels.attention.rope import rope_table
from hybrid.infer.kernels.attention.rope_axes import axes_of, pick_turns


def test_axes_of_pairs() -> None:
    assert axes_of([4, 3, 1], 8, interleaved=True).tolist() == [0, 1, 2, 0, 1, 0, 0, 1]
    assert axes_of([6, 7, 3], 16, interleaved=True).tolist() == [0, 1, 2] * 3 + [0, 1, 0, 0, 1, 0, 0]
    assert axes_of([4, 7, 5], 16, interleaved=False).tolist() == [0] * 4 + [1] * 7 + [2] * 5
    assert axes_of([2, 1, 1, 0], 4, interleaved=False).tolist() == [0, 0, 1, 2]


def test_turns_of_each_token() -> None:
    half, n, n_ctx = 7, 13, 50
    table = rope_table(n_ctx, 2 * half, 1000.0)
    positions = np.random.default_rng(0).integers(0, n_ctx, (3, n + 4)).astype(np.int64)
    axes = axes_of([3, 2, 2], half, interleaved=True)
    for threads in (1, 3):
        out = np.full((n + 1, half, 2), 7.25, np.float32)
        fields = record(
            pick_turns, count=np.array([n], np.int64), positions=positions, stride=positions.strides[0], axes=axes,
            table=table, out=out, half=half,
        )  # fmt: skip
        run(pick_turns, fields, threads)
        want = np.stack([table[positions[axes, t], np.arange(half)] for t in range(n)])
        assert same_bits(out[:n].copy(), want)
        assert (out[n] == 7.25).all()
