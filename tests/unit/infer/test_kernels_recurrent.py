"""Layouts that the recurrent kernels share."""

import numpy as np
import pytest
from hybrid.infer.kernels.recurrent import arrange_heads, pad_channels, restore_heads, state_shape
from reference.run_kernel import same_bits


@pytest.mark.parametrize("depth", [1, 7])
@pytest.mark.parametrize("lanes", [1, 19, 48])
@pytest.mark.parametrize("heads", [1, 3])
def test_layout_is_undone(heads: int, lanes: int, depth: int) -> None:
    a = np.random.default_rng(0).standard_normal((heads, lanes, depth), np.float32)
    arranged = arrange_heads(a)
    assert arranged.shape == state_shape(heads, lanes, depth) == (heads, -(-lanes // 16), depth, 16)
    assert arranged[heads - 1, (lanes - 1) // 16, depth - 1, (lanes - 1) % 16] == a[-1, -1, -1]
    assert same_bits(restore_heads(arranged, lanes), a)


def test_missing_lanes_are_zero() -> None:
    assert (arrange_heads(np.ones((2, 5, 3)))[..., 5:] == 0).all()
    assert pad_channels(np.ones(17)).tolist() == [1.0] * 17 + [0.0] * 15
