"""Properties of the block formats, for any weights."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from hybrid.quant.ggml import formats
from hybrid.quant.ggml.formats.random_blocks import random_blocks
from hybrid.quant.ggml.types import TRAITS, GGMLType

pytestmark = pytest.mark.exhaustive

QUICK = settings(max_examples=200)
FEWER = settings(QUICK, max_examples=25)
BLOCKS = hnp.arrays(np.float32, (3, 32), elements=st.floats(-30000, 30000, width=32))
LARGE_BLOCKS = hnp.arrays(np.float32, (2, 256), elements=st.floats(-30000, 30000, width=32))
FLOATS = (GGMLType.F32, GGMLType.F16, GGMLType.BF16)
WRITTEN = sorted(k for k in GGMLType if formats.can_encode(k))
# Formats that minimise squared errors do not bound each error, nor find the same codes again.
SEARCHED = {k for k in WRITTEN if k.name.endswith("_K") or k.name.startswith("IQ")}
DIRECT = [k for k in WRITTEN if k not in SEARCHED]


def bound(kind: GGMLType, x: np.ndarray) -> np.ndarray:
    """The largest error of each weight: x f64 [n, block], whole blocks.

    It follows from the step of each format, and from rounding a scale to f16 (2^-11, if subnormal 2^-25) times the
    largest q.
    """
    amax = np.abs(x).max(axis=1, keepdims=True)
    span = np.ptp(x, axis=1, keepdims=True)

    def f16(value: np.ndarray, times: float = 1) -> np.ndarray:
        return np.maximum(value * 2.0**-11, times * 2.0**-25)

    return {
        GGMLType.F32: lambda: 0 * amax,
        GGMLType.F16: lambda: f16(np.abs(x)),
        GGMLType.BF16: lambda: np.maximum(np.abs(x) * 2.0**-8, 2.0**-134),
        GGMLType.Q8_0: lambda: amax / 127 * 0.5001 + f16(amax, 127),
        # q stops below 2^bits: a weight of opposite sign to the largest may miss by a whole step
        GGMLType.Q4_0: lambda: amax / 8 * 1.0001 + f16(amax, 8),
        GGMLType.Q5_0: lambda: amax / 16 * 1.0001 + f16(amax, 16),
        GGMLType.Q4_1: lambda: span / 15 * 0.5001 + f16(span, 15) + f16(amax),
        GGMLType.Q5_1: lambda: span / 31 * 0.5001 + f16(span, 31) + f16(amax),
        GGMLType.Q2_0: lambda: amax * 0.5001 + f16(amax),
        GGMLType.TQ1_0: lambda: amax * 0.5001 + f16(amax),
        GGMLType.TQ2_0: lambda: amax * 0.5001 + f16(amax),
        # the scale may be smaller than the largest magnitude
        GGMLType.PQ2_0: lambda: amax * 1.0001 + f16(amax),
        GGMLType.PTQ1_0: lambda: amax * 1.0001 + f16(amax),
        # one magnitude, the mean, for all
        GGMLType.Q1_0: lambda: amax * 1.0001 + f16(amax),
        # steps are a quarter to an eighth of the largest weight, which may exceed the largest code by a quarter
        GGMLType.MXFP4: lambda: amax * 0.2501 + 2.0**-127,
        # the scale is rounded to 4 bits, at least 2^-9, at most 448
        GGMLType.NVFP4: lambda: amax * 0.3 + 6 * 2.0**-9 + np.maximum(amax - 2688, 0),
    }[kind]()


@pytest.mark.parametrize("kind", DIRECT, ids=lambda k: k.name)
def test_an_error_is_at_most_half_a_step(kind: GGMLType) -> None:
    @FEWER
    @given(LARGE_BLOCKS)
    def check(x: np.ndarray) -> None:
        values = formats.decode(kind, formats.encode(kind, x))
        wide = x.reshape(-1, max(TRAITS[kind].block, 32)).astype(np.float64)
        assert (np.abs(values.astype(np.float64).reshape(wide.shape) - wide) <= bound(kind, wide)).all()

    check()


@QUICK
@given(BLOCKS, st.sampled_from(FLOATS))
def test_float_encoding_is_idempotent(x: np.ndarray, kind: GGMLType) -> None:
    once = formats.encode(kind, x)
    np.testing.assert_array_equal(formats.encode(kind, formats.decode(kind, once)), once)


@QUICK
@given(hnp.arrays(np.int8, (3, 32), elements=st.integers(-127, 127)), hnp.arrays(np.uint16, 3), st.integers(0, 31))
def test_encoding_a_decoded_q8_0_block_changes_nothing(q: np.ndarray, d: np.ndarray, where: int) -> None:
    """For blocks from the encoder: the largest |q| is 127, the scale positive and not subnormal."""
    q[:, where] = 127
    scale = np.maximum(d & 0x7FFF, 0x0400)
    scale = np.minimum(scale, 0x7BFF).astype("<u2")
    block = np.concatenate([scale[:, None].view(np.uint8).reshape(3, 2), q.view(np.uint8)], axis=1)
    np.testing.assert_array_equal(formats.encode(GGMLType.Q8_0, formats.decode(GGMLType.Q8_0, block)), block)


STABLE = [k for k in DIRECT if k not in (GGMLType.Q1_0, GGMLType.Q4_1, GGMLType.Q5_1, GGMLType.MXFP4, GGMLType.NVFP4)]


@pytest.mark.parametrize("kind", STABLE, ids=lambda k: k.name)
def test_encoding_a_decoded_block_is_stable_on_real_weights(kind: GGMLType) -> None:
    x = np.random.default_rng(3).standard_normal((600, 256)).astype(np.float32)
    once = formats.decode(kind, formats.encode(kind, x))
    twice = formats.decode(kind, formats.encode(kind, once))
    np.testing.assert_array_equal(once, twice)


@QUICK
@given(st.sampled_from(sorted(GGMLType)), st.integers(0, 5), st.sampled_from([1, 2, 7]), st.floats(0.004, 200))
def test_random_blocks_are_finite_and_of_the_size_asked_for(kind: GGMLType, seed: int, rows: int, scale: float) -> None:
    if kind is GGMLType.NVFP4:
        scale = max(scale, 0.05)  # its scales have 3 bits of mantissa, and steps of at least 2^-9
    if kind is GGMLType.I32:
        scale = max(scale, 2.0)  # values are rounded to integers
    shape = (rows, 2, 1280)
    raw = random_blocks(kind, shape, np.random.default_rng(seed), scale)
    values = formats.decode(kind, raw).astype(np.float64)
    assert values.shape == shape and np.isfinite(values).all()
    assert 0.75 < values.std() / scale < 1.25, f"{kind.name}: {values.std()} for {scale}"
    assert abs(values.mean()) < 0.25 * scale
    again = random_blocks(kind, shape, np.random.default_rng(seed), scale)
    np.testing.assert_array_equal(again, raw)
