"""Row-wise kernels against float64 at odd lengths."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from reference.gemma4 import gelu
from reference.run_kernel import guarded, record, run, same_bits, worst
from reference.zamba import gelu_erf

from hybrid.infer.kernels.build.jit import Kernel
from hybrid.infer.kernels.rows import elementwise
from hybrid.quant.ggml import formats
from hybrid.quant.ggml.types import GGMLType

LENGTHS = [1, 7, 16, 33, 250, 1031]


def rows(shape: tuple[int, ...], seed: int) -> np.ndarray:
    _, view = guarded(shape)
    view[...] = np.random.default_rng(seed).standard_normal(shape)
    return view


def of_rows(kernel: Kernel, n: int, /, **fields: Any) -> np.ndarray:
    """The record of an op on n rows."""
    return record(kernel, count=np.array([n], np.int64), **fields)


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("scale", [1.0, 0.6])
def test_rms_norm_adds_the_residual_and_normalizes(n: int, weighted: bool, scale: float) -> None:
    x, r, out = rows((5, n), 1), rows((5, n), 2), rows((5, n), 3)
    w = np.random.default_rng(4).standard_normal(n).astype(np.float32) if weighted else None
    before, total = x + r, x.astype(np.float64) + np.float32(scale) * r.astype(np.float64)
    expected = total / np.sqrt((total**2).mean(1, keepdims=True) + 1e-5) * (w if weighted else 1.0)
    fields = of_rows(elementwise.rms_norm, 5, x=x, residual=r, weight=w, out=out, n=n, eps=1e-5, scale=scale)
    run(elementwise.rms_norm, fields, 2)
    assert worst(x, total) < 1e-6
    assert scale != 1.0 or same_bits(x.copy(), before)
    assert worst(out, expected) < 2e-6


def test_rms_norm_of_chosen_rows() -> None:
    x, out = rows((6, 20), 1), rows((2, 20), 2)
    index = np.array([4, 1], np.int64)
    before = x.copy()
    fields = of_rows(elementwise.rms_norm, 2, x=x, out=out, n=20, eps=0.0, index=index)
    run(elementwise.rms_norm, fields)
    chosen = before[[4, 1]].astype(np.float64)
    assert worst(out, chosen / np.sqrt((chosen**2).mean(1, keepdims=True))) < 2e-6
    np.testing.assert_array_equal(x, before)


@pytest.mark.parametrize("n", LENGTHS)
def test_scaled_rows(n: int) -> None:
    x, r = rows((5, n), 1), rows((5, n), 2)
    total = x.astype(np.float64) + np.float32(0.22) * r.astype(np.float64)
    run(elementwise.add_rows, of_rows(elementwise.add_rows, 5, x=x, residual=r, n=n, scale=0.22), 2)
    assert worst(x, total) < 1e-6
    product = x * np.float32(12.0)
    run(elementwise.scale_rows, of_rows(elementwise.scale_rows, 5, x=x, n=n, scale=12.0), 3)
    assert same_bits(x.copy(), product)


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("n_threads", [1, 2, 3])
def test_rows_of_groups(n: int, n_threads: int) -> None:
    """Columns 1 to 3 and 6 of 8; columns between groups belong to no group."""
    x, r = rows((8, n), 1), rows((8, n), 2)
    expected = x.copy()
    for column in (1, 2, 3, 6):
        expected[column] += r[column]
    groups = np.array([2, 4, 1, 3, 0, 6, 1], np.int64)
    run(elementwise.add_groups, record(elementwise.add_groups, groups=groups, x=x, residual=r, n=n), n_threads)
    assert same_bits(x.copy(), expected)
    kernel, biases = elementwise.add_group_rows, rows((5, n), 3)
    for column in (1, 2, 3, 6):  # of expert 4, of expert 0
        expected[column] += biases[0 if column == 6 else 4]
    run(kernel, record(kernel, groups=groups, x=x, rows=biases, stride=biases.strides[0], n=n), n_threads)
    assert same_bits(x.copy(), expected)
    kernel, factors = elementwise.scale_groups, np.linspace(0.3, 2, 5, dtype=np.float32)
    for column in (1, 2, 3, 6):
        expected[column] *= factors[0 if column == 6 else 4]
    run(kernel, record(kernel, groups=groups, x=x, factors=factors, n=n), n_threads)
    assert same_bits(x.copy(), expected)


@pytest.mark.parametrize("n", LENGTHS)
def test_scaled_copies(n: int) -> None:
    x, out = rows((5, n), 1), rows((5, n), 2)
    before, last = x.copy(), out[4].copy()
    run(elementwise.scaled_copy, of_rows(elementwise.scaled_copy, 4, x=x, out=out, n=n, scale=3.25), 3)
    assert same_bits(out[:4].copy(), before[:4] * np.float32(3.25)) and same_bits(x.copy(), before)
    assert same_bits(out[4].copy(), last), "a row beyond the batch's was written"


@pytest.mark.parametrize("n", LENGTHS)
def test_rows_scaled_by_position(n: int) -> None:
    x, pos, table = rows((5, n), 1), np.array([3, 0, 8, 3, 1]), np.linspace(0.5, 3, 9, dtype=np.float32)
    expected = x * table[pos][:, None]
    kernel = elementwise.scale_rows_by_position
    run(kernel, of_rows(kernel, 5, pos=pos, x=x, n=n, table=table), 2)
    assert same_bits(x.copy(), expected)


@pytest.mark.parametrize("n", LENGTHS)
def test_swiglu(n: int) -> None:
    gate, up = rows((4, n), 1), rows((4, n), 2)
    gate *= 20
    g = gate.astype(np.float64)
    expected = g / (1 + np.exp(-g)) * up
    run(elementwise.swiglu, of_rows(elementwise.swiglu, 4, gate=gate, up=up, out=gate, n=n), 3)
    assert worst(gate, expected) < 1e-6


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize(("kernel", "gelu"), [(elementwise.geglu, gelu), (elementwise.geglu_erf, gelu_erf)])
def test_geglu(n: int, kernel: Kernel, gelu: Callable[[np.ndarray], np.ndarray]) -> None:
    gate, up = rows((4, n), 1), rows((4, n), 2)
    gate *= 8
    expected = gelu(gate.astype(np.float64)) * up
    run(kernel, of_rows(kernel, 4, gate=gate, up=up, out=gate, n=n), 3)
    assert worst(gate, expected) < 1e-6


def test_gelu_where_it_is_small() -> None:
    gate, up = np.linspace(-12, 12, 4801, dtype=np.float32)[None], np.ones((1, 4801), np.float32)
    gate[0, 0], expected = np.nan, gelu_erf(gate.astype(np.float64))
    run(elementwise.geglu_erf, of_rows(elementwise.geglu_erf, 1, gate=gate, up=up, out=gate, n=gate.size))
    assert np.isnan(gate[0, 0])
    got, expected = gate[0, 1:], expected[0, 1:]
    relative = np.abs(got - expected) / np.maximum(np.abs(expected), 1e-30)
    near = np.abs(np.linspace(-12, 12, 4801)[1:]) < 4
    print(f"relative error {relative[near].max():.1e} up to 4, {np.abs(got - expected).max():.1e} beyond")
    assert relative[near].max() < 1.5e-6
    assert np.abs(got - expected).max() < 1e-6


@pytest.mark.parametrize("n", [*LENGTHS, 1030])
def test_cap_rows(n: int) -> None:
    x = rows((3, n), 1)
    x *= 60
    x[1, -1] = np.nan
    expected = 30 * np.tanh(x.astype(np.float64) / 30)
    run(elementwise.cap_rows, of_rows(elementwise.cap_rows, 3, x=x, n=n, cap=30.0), 2)
    np.testing.assert_allclose(x, expected, atol=4e-6)


@pytest.mark.parametrize("n", LENGTHS)
def test_relu_squared(n: int) -> None:
    x = rows((4, n), 1)
    x[1, -1] = np.nan
    expected = np.where(x < 0, np.float32(0), x * x)
    run(elementwise.relu_squared, of_rows(elementwise.relu_squared, 4, x=x, n=n), 3)
    np.testing.assert_array_equal(x, expected)


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("only", [False, True])
def test_gate_rows(n: int, only: bool) -> None:
    x, gate = rows((5, n), 1), rows((5, n), 2)
    gate *= 20
    g = gate.astype(np.float64)
    expected = x / (1 + np.exp(-(g[:, :1] if only else g)))
    run(elementwise.gate_rows, of_rows(elementwise.gate_rows, 5, x=x, gate=gate, n=n, one_gate=only), 3)
    assert worst(x, expected) < 1e-6


@pytest.mark.parametrize("n", LENGTHS)
def test_gate_rows_to_other_rows(n: int) -> None:
    x, gate, out = rows((5, n), 1), rows((5, n), 2), rows((5, n), 3)
    before, expected = x.copy(), 2.5 * x / (1 + np.exp(-gate.astype(np.float64)))
    run(elementwise.gate_rows, of_rows(elementwise.gate_rows, 5, x=x, gate=gate, n=n, out=out, scale=2.5), 3)
    assert worst(out, expected) < 1e-6
    np.testing.assert_array_equal(x, before)


def test_take_parts() -> None:
    """The second part of every three, groups of 5."""
    x, out = rows((4, 7 * 15), 1), rows((4, 35), 2)
    expected = x.reshape(4, 7, 3, 5)[:, :, 1].reshape(4, 35)
    fields = of_rows(elementwise.take_parts, 4, x=x[:, 5:], out=out, n_group=7, n=5, stride=60)
    run(elementwise.take_parts, fields, 3)
    np.testing.assert_array_equal(out, expected)


def test_swiglu_at_the_ends_of_the_scale() -> None:
    gate = np.array([[np.inf, -np.inf, 1e30, -1e30, 0.0, -0.0, np.nan, 88.0]], np.float32)
    up = np.ones_like(gate)
    run(elementwise.swiglu, of_rows(elementwise.swiglu, 1, gate=gate, up=up, out=gate, n=8))
    np.testing.assert_array_equal(gate[0, [0, 2, 4, 7]], np.array([np.inf, 1e30, 0.0, 88.0], np.float32))
    assert np.isnan(gate[0, 6])
    assert abs(gate[0, 3]) < 1e-7


@pytest.mark.parametrize("kind", [GGMLType.F32, GGMLType.F16, GGMLType.BF16])
def test_embedding_decodes_rows(kind: GGMLType) -> None:
    """Rows of any length; products/test_products.py tests the other types."""
    n = 77
    table = np.random.default_rng(1).standard_normal((9, n)).astype(np.float32)
    raw = formats.encode(kind, table)
    tokens = np.array([8, 0, 3, 3], np.int64)
    out = rows((4, n), 2)
    fields = of_rows(elementwise.EMBED[kind], 4, tokens=tokens, table=raw, stride=raw.strides[0], out=out, n=n)
    run(elementwise.EMBED[kind], fields, 2)
    np.testing.assert_array_equal(out, formats.decode(kind, raw)[tokens])


def test_several_rows_of_a_table_side_by_side() -> None:
    n, n_part = 19, 3
    table = np.random.default_rng(1).standard_normal((9, n)).astype(np.float32)
    tokens = np.array([[8, 0, 3], [3, 1, 1]], np.int64)
    out, kernel = rows((2, n_part * n), 2), elementwise.EMBED[GGMLType.F32]
    more = {"table": table, "stride": table.strides[0], "out": out, "n": n, "n_part": n_part}
    run(kernel, of_rows(kernel, 2, tokens=tokens, **more), 3)
    np.testing.assert_array_equal(out, table[tokens].reshape(2, -1))
