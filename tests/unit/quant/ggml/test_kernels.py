"""`quantize`'s kernels for encoding and decoding against the formats' numpy code, to the bit."""

import numpy as np
import pytest

from hybrid.quant.ggml import formats
from hybrid.quant.ggml.formats.random_blocks import random_blocks
from hybrid.quant.ggml.kernels import coding
from hybrid.quant.ggml.kernels.errors import error_sums
from hybrid.quant.ggml.types import TRAITS, GGMLType, row_nbytes

KINDS = sorted(coding.KINDS)


def weights(n: int, rng: np.random.Generator) -> np.ndarray:
    """f32 [n, 256] of all sizes: ties, zeros of both signs, rows of one sign, subnormal, tiny and large numbers."""
    x = rng.standard_normal((n, 256)).astype(np.float32)
    x[::3] = rng.integers(-128, 128, x[::3].shape) / 4
    x[1::7] = rng.integers(-6, 7, x[1::7].shape) / 2
    x *= np.float32(2) ** rng.integers(-12, 10, (n, 1)).astype(np.float32)
    x[:5] = np.array([[0], [-0.0], [1], [-1], [1e-41]])
    x[5] = 1e-39 * x[5]
    x[6:30] *= np.float32(1e-6)
    x[30:40] *= np.float32(1e-36)
    x[40, ::2], x[40, 1::2] = 0, -0.0
    x[41, ::2], x[41, 1::2] = -0.0, 0
    x[42], x[42, 4], x[42, 9] = np.abs(x[42]), -0.0, 0
    x[43], x[43, 4], x[43, 9] = -np.abs(x[43]), 0, -0.0
    x[44], x[45] = np.arange(256), -np.arange(256)
    return x


def decoded(kind: GGMLType, raw: np.ndarray, n: int) -> np.ndarray:
    out = np.full((len(raw), n), np.nan, np.float32)
    return coding.decode(kind, raw, out)


@pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.name)
def test_bytes_and_values_of_the_numpy_code(kind: GGMLType) -> None:
    rng = np.random.default_rng(11)
    x = weights(1500, rng)
    expected = formats.encode(kind, x)
    raw = np.full_like(expected, 0xA5)
    coding.encode(kind, x, raw)
    differing = np.flatnonzero((raw != expected).any(axis=1))
    assert not differing.size, f"rows {differing} of {len(x)} differ"
    for blocks in (expected, random_blocks(kind, (50, 256), rng)):
        values = formats.decode(kind, blocks)
        np.testing.assert_array_equal(decoded(kind, blocks, 256).view(np.uint32), values.view(np.uint32))


@pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.name)
def test_any_number_of_rows_and_any_address(kind: GGMLType) -> None:
    """Rows of one block; bytes that begin at an odd address."""
    rng = np.random.default_rng(12)
    n = TRAITS[kind].block if TRAITS[kind].block > 1 else 37
    for rows in (1, 3):
        x = rng.standard_normal((rows, n)).astype(np.float32)
        expected = formats.encode(kind, x)
        buffer = np.zeros(expected.size + 2, np.uint8)
        raw = buffer[1:-1].reshape(expected.shape)
        coding.encode(kind, x, raw)
        np.testing.assert_array_equal(raw, expected)
        assert buffer[0] == buffer[-1] == 0
        np.testing.assert_array_equal(decoded(kind, raw, n), formats.decode(kind, expected))


@pytest.mark.parametrize("kind", [k for k in KINDS if formats.FORMATS[k].weighted], ids=lambda k: k.name)
def test_importance_is_passed_on(kind: GGMLType) -> None:
    rng = np.random.default_rng(13)
    x, importance = rng.standard_normal((5, 512)).astype(np.float32), rng.standard_exponential(512).astype(np.float32)
    raw = np.zeros((5, row_nbytes(kind, 512)), np.uint8)
    coding.encode(kind, x, raw, importance)
    np.testing.assert_array_equal(raw, formats.encode(kind, x, importance=importance))
    assert (raw != formats.encode(kind, x)).any()


def test_every_half_and_floats_of_all_sizes() -> None:
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.uint8)[None]
    values, expected = decoded(GGMLType.F16, halves, 1 << 16), formats.decode(GGMLType.F16, halves)
    number = ~np.isnan(expected)
    np.testing.assert_array_equal(np.isnan(values), ~number)
    np.testing.assert_array_equal(values[number].view(np.uint32), expected[number].view(np.uint32))
    bits = np.random.default_rng(14).integers(0, 1 << 32, (1, 1_000_003), dtype=np.uint64).astype(np.uint32)
    x = bits.view(np.float32)
    x[0, :6] = 65504, 65519, 65520, 6e-8, 2.98e-8, -6.1e-5
    number = ~np.isnan(x)
    for kind in (GGMLType.F16, GGMLType.BF16):
        raw = np.zeros((1, 2 * x.size), np.uint8)
        coding.encode(kind, x, raw)
        ours, numpys = raw.view(np.uint16), formats.encode(kind, x).view(np.uint16)
        np.testing.assert_array_equal(ours[number], numpys[number])
        assert np.isnan(decoded(kind, raw, x.size)[~number]).all()


@pytest.mark.parametrize("n", [1, 31, 32, 33, 67, 1024])
def test_error_sums(n: int) -> None:
    rng = np.random.default_rng(n)
    x, y = rng.standard_normal((2, 5, n)).astype(np.float32)
    expected = [np.square(a.astype(np.float64)).sum(axis=1) for a in (y - x, x, y)]
    sums, alone = np.full((5, 3), np.nan), np.full((2, 3), np.nan)
    assert error_sums(x, y, sums) and error_sums(x[3:], y[3:], alone)
    np.testing.assert_allclose(sums, np.stack(expected, axis=1), rtol=3e-7)
    np.testing.assert_array_equal(sums[3:], alone)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e20])
@pytest.mark.parametrize("where", [3, 39])
def test_error_sums_tell_what_is_no_number(value: float, where: int) -> None:
    """In whole vectors, where the square of 1e20 overflows, and after them, where it does not."""
    x = np.ones((3, 40), np.float32)
    y, out = x.copy(), np.zeros((3, 3))
    y[1, where] = value
    beyond = not np.isfinite(value) or where < 32
    assert error_sums(x, y, out) is not beyond
    assert np.isfinite(out).all(axis=1).tolist() == [True, not beyond, True]
    y[1, where], x[1, where] = 1, value
    assert error_sums(x, y, out) is not beyond
