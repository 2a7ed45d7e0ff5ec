"""Laws of the block formats, whatever the weights."""

import numpy as np
import pytest
from hybrid.quant.ggml import formats
from hybrid.quant.ggml.types import GGMLType
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

QUICK = settings(max_examples=200, deadline=None, derandomize=True, database=None)
BLOCKS = hnp.arrays(np.float32, (3, 32), elements=st.floats(-30000, 30000, width=32))
FLOATS = (GGMLType.F32, GGMLType.F16, GGMLType.BF16)


@QUICK
@given(st.sampled_from(sorted(k for k in GGMLType if formats.can_encode(k))), BLOCKS)
def test_an_error_is_at_most_half_a_step(kind: GGMLType, x: np.ndarray) -> None:
    values = formats.decode(kind, formats.encode(kind, x))
    amax = np.abs(x).max(axis=1, keepdims=True).astype(np.float64)
    # The step of each format, and the rounding of the scale to f16 (2^-11, if subnormal 2^-25) times the largest q.
    bound = {
        GGMLType.F32: 0 * amax,
        GGMLType.F16: np.maximum(np.abs(x) * 2.0**-11, 2.0**-25),
        GGMLType.BF16: np.maximum(np.abs(x) * 2.0**-8, 2.0**-134),
        GGMLType.Q8_0: amax / 127 * 0.5001 + np.maximum(amax * 2.0**-11, 127 * 2.0**-25),
        # q stops at 15, so that a weight opposite to the largest may miss by a whole step.
        GGMLType.Q4_0: amax / 8 * 1.0001 + np.maximum(amax * 2.0**-11, 8 * 2.0**-25),
    }[kind]
    assert (np.abs(values.astype(np.float64) - x) <= bound).all()


@QUICK
@given(BLOCKS, st.sampled_from(FLOATS))
def test_float_encoding_is_idempotent(x: np.ndarray, kind: GGMLType) -> None:
    once = formats.encode(kind, x)
    np.testing.assert_array_equal(formats.encode(kind, formats.decode(kind, once)), once)


@QUICK
@given(hnp.arrays(np.int8, (3, 32), elements=st.integers(-127, 127)), hnp.arrays(np.uint16, 3), st.integers(0, 31))
def test_encoding_a_decoded_q8_0_block_changes_nothing(q: np.ndarray, d: np.ndarray, where: int) -> None:
    """For blocks as the encoder makes them: a largest |q| of 127, a scale that is positive and not subnormal."""
    q[:, where] = 127
    scale = np.maximum(d & 0x7FFF, 0x0400)
    scale = np.minimum(scale, 0x7BFF).astype("<u2")
    block = np.concatenate([scale[:, None].view(np.uint8).reshape(3, 2), q.view(np.uint8)], axis=1)
    np.testing.assert_array_equal(formats.encode(GGMLType.Q8_0, formats.decode(GGMLType.Q8_0, block)), block)


@pytest.mark.parametrize("kind", [GGMLType.Q8_0, GGMLType.Q4_0], ids=lambda k: k.name)
def test_encoding_a_decoded_block_is_stable_on_real_weights(kind: GGMLType) -> None:
    x = np.random.default_rng(3).standard_normal((5000, 32)).astype(np.float32)
    once = formats.decode(kind, formats.encode(kind, x))
    twice = formats.decode(kind, formats.encode(kind, once))
    np.testing.assert_array_equal(once, twice)
