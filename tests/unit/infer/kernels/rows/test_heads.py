"""Heads as groups of columns: products with one matrix per head, against float64."""

import numpy as np
import pytest
from reference.run_kernel import record, run

from hybrid.infer.kernels.rows import heads

SHAPES = [(1, 5, 17, 17, 1), (7, 3, 20, 32, 8), (16, 1, 9, 9, 16)]


def columns_of(n_head: int, n_tok: int, width: int) -> np.ndarray:
    """[tok, head]: the column of each token and head in the groups."""
    groups = np.full(1 + 3 * n_head + 1, -7, np.int64)
    fields = record(heads.head_groups, count=np.array([n_tok]), n_head=n_head, width=width, groups=groups)
    run(heads.head_groups, fields, 3)
    assert groups[0] == n_head and groups[-1] == -7
    rows = groups[1:-1].reshape(n_head, 3)
    assert rows[:, 0].tolist() == list(range(n_head)) and (rows[:, 2] == n_tok).all()
    assert (rows[:, 1] % width == 0).all() and (np.diff(rows[:, 1]) >= n_tok).all()
    return rows[:, 1] + np.arange(n_tok)[:, None]


@pytest.mark.parametrize("n_threads", [1, 3])
@pytest.mark.parametrize(("n_tok", "n_head", "n", "step", "width"), SHAPES)
def test_split(n_tok: int, n_head: int, n: int, step: int, width: int, n_threads: int) -> None:
    """Values between two heads stay unchanged, and so do columns of no group."""
    x = np.random.default_rng(n).standard_normal((n_tok, n_head * step + 3)).astype(np.float32)
    columns = columns_of(n_head, n_tok, width)
    out = np.full((columns.max() + 2, n + 5), 7.25, np.float32)
    fields = record(
        heads.split_heads, count=np.array([n_tok]), x=x, out=out, n_head=n_head, n=n, stride=4 * step, width=width
    )
    run(heads.split_heads, fields, n_threads)
    expected = np.full_like(out, 7.25)
    for t in range(n_tok):
        for h in range(n_head):
            expected[columns[t, h], :n] = x[t, h * step : h * step + n]
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("n_threads", [1, 3])
@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize(("n_tok", "n_head", "n", "step", "width"), SHAPES)
def test_join(n_tok: int, n_head: int, n: int, step: int, width: int, gated: bool, n_threads: int) -> None:
    rng = np.random.default_rng(n)
    columns = columns_of(n_head, n_tok, width)
    x = rng.standard_normal((columns.max() + 2, n + 5)).astype(np.float32)
    gate = (9 * rng.standard_normal((n_tok, n_head + 2))).astype(np.float32)
    out = np.full((n_tok, n_head * step + 3), 7.25, np.float32)
    fields = record(
        heads.join_heads,
        count=np.array([n_tok]),
        x=x,
        out=out,
        n_head=n_head,
        n=n,
        stride=4 * step,
        width=width,
        gate=gate if gated else None,
    )
    run(heads.join_heads, fields, n_threads)
    expected = np.full(out.shape, 7.25)
    for t in range(n_tok):
        for h in range(n_head):
            factor = 1 / (1 + np.exp(-gate[t, h].astype(np.float64))) if gated else 1.0
            expected[t, h * step : h * step + n] = factor * x[columns[t, h], :n]
    error = np.abs(out - expected).max()
    print(f"join: error {error:.1e}")
    assert error < 4e-7 if gated else error == 0


@pytest.mark.parametrize("n_threads", [1, 3])
@pytest.mark.parametrize(("n_tok", "n_head", "n", "width"), [(1, 5, 17, 17), (7, 3, 20, 33), (4, 2, 1, 16)])
def test_heads_are_padded_with_zeros(n_tok: int, n_head: int, n: int, width: int, n_threads: int) -> None:
    x = np.random.default_rng(n).standard_normal((n_tok, n_head * n + 3)).astype(np.float32)
    out = np.full((n_tok + 1, n_head * width + 3), np.nan, np.float32)
    fields = record(heads.pad_heads, count=np.array([n_tok]), x=x, out=out, n_head=n_head, n=n, width=width)
    run(heads.pad_heads, fields, n_threads)
    expected = np.full_like(out, np.nan)
    for t in range(n_tok):
        for h in range(n_head):
            part = expected[t, h * width : (h + 1) * width]
            part[:n], part[n:] = x[t, h * n : (h + 1) * n], 0.0
    np.testing.assert_array_equal(out, expected)


def test_what_is_split_is_joined() -> None:
    n_tok, n_head, n, width = 13, 4, 11, 8
    x = np.random.default_rng(0).standard_normal((n_tok, n_head * n)).astype(np.float32)
    apart = np.full((n_head * 16, n), np.nan, np.float32)
    back = np.full_like(x, np.nan)
    both = {"count": np.array([n_tok]), "n_head": n_head, "n": n, "stride": 4 * n, "width": width}
    run(heads.split_heads, record(heads.split_heads, x=x, out=apart, **both), 2)
    run(heads.join_heads, record(heads.join_heads, x=apart, out=back, **both), 2)
    np.testing.assert_array_equal(back, x)


@pytest.mark.parametrize("n_threads", [1, 3])
@pytest.mark.parametrize(("n_tok", "n_head", "n"), [(1, 5, 17), (7, 3, 20), (16, 1, 9)])
def test_gates(n_tok: int, n_head: int, n: int, n_threads: int) -> None:
    rng = np.random.default_rng(n)
    x, gate = (rng.standard_normal((n_tok, width)).astype(np.float32) for width in (n_head * n + 3, n_head))
    expected = x.astype(np.float64)
    expected[:, : n_head * n] /= np.repeat(1 + np.exp(-gate.astype(np.float64)), n, axis=1)
    fields = record(heads.gate_heads, count=np.array([n_tok]), x=x, gate=gate, n_head=n_head, n=n)
    run(heads.gate_heads, fields, n_threads)
    np.testing.assert_allclose(x, expected, rtol=1e-6)
