"""Tensors that stay F32 in files of any type."""

import pytest

from hybrid.convert.outtype import weight_type
from hybrid.quant.ggml.types import FileType, GGMLType


@pytest.mark.parametrize("name", ["ssm_conv1d", "ssm_conv1d_q", "ssm_conv1d_k", "ssm_conv1d_v", "shortconv.conv"])
def test_taps_of_convolutions(name: str) -> None:
    assert weight_type(f"blk.3.{name}.weight", (1, 96, 1, 3), FileType.BF16) is GGMLType.F32


@pytest.mark.parametrize("name", ["ssm_conv1d_out", "attn_q"])
def test_matrices_do_not(name: str) -> None:
    assert weight_type(f"blk.3.{name}.weight", (96, 64), FileType.BF16) is GGMLType.BF16
