"""HQQ, against a slow twin."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from quantized_llama import Parts, change, codes, compare, scales, write
from reference import quantized_checkpoints as twin

from hybrid.convert import plan
from hybrid.quant.ggml.errors import HybridError

PER_WORD = {8: 1, 4: 2, 3: 10, 2: 4, 1: 8}
SETTINGS = {"quantization_config": {"quant_method": "hqq", "quant_config": {"weight_quant_params": {"nbits": 4}}}}


def hqq(
    rng: np.random.Generator, rows: int, n: int, bits: int = 4, group: int = 64, axis: int = 1
) -> tuple[Parts, np.ndarray]:
    n_groups = rows * n // group
    high, wide = (n_groups, group) if axis == 1 else (group, n_groups)
    of_groups = (n_groups, 1) if axis == 1 else (1, n_groups)
    step = -(-high // PER_WORD[bits])
    stored = rng.integers(0, 1 << 30, (step, wide), dtype=np.int32) if bits == 3 else codes(rng, step, wide)
    parts: Parts = {
        "W_q": ("I32" if bits == 3 else "U8", stored),
        "scale": ("F32", scales(rng, *of_groups)),
        "zero": ("F32", rng.integers(0, 1 << bits, of_groups).astype(np.float32)),
        "shape": ("I64", np.array([rows, n])),
        "packing": ("U8", np.frombuffer(b"4bit_u8", np.uint8)),
    }
    meant = twin.hqq({name: v for name, (_, v) in parts.items()}, (rows, n), bits, axis)
    for name, value in {"nbits": bits, "group_size": group, "axis": axis, "quant_zero": 0}.items():
        parts[name] = ("I32", np.array(value, np.int32))
    return parts, meant


@pytest.mark.parametrize("bits", PER_WORD)
@pytest.mark.parametrize("axis", [0, 1])
def test_bits(bits: int, axis: int, tmp_path: Path) -> None:
    """Groups of 16 and 64 rows, or that end within rows; equal to the bit."""
    group = 64 if axis == 0 else 16
    compare(tmp_path / "model", write(tmp_path / "model", SETTINGS, hqq, bits=bits, axis=axis, group=group))


def test_groups_that_end_within_rows(tmp_path: Path) -> None:
    compare(tmp_path / "model", write(tmp_path / "model", SETTINGS, hqq, group=128))


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"quant_zero": 1}, "quant_zero is 1: HQQ with quant_zero is not read"),
        ({"view_as_float": 1}, "view_as_float is 1"),
        ({"nbits": 5}, r"HQQ of 5 bits, axis 1, shape \[64, 96\] is not read"),
        ({"axis": 2}, "HQQ of 4 bits, axis 2"),
        ({"group_size": 60}, "group_size.* = 60 is no divisor of 6144 values"),
        ({"group_size": 32}, r"W_q is U8 \[48, 64\], expected U8 \[96, 32\]"),
    ],
)
def test_refused_tensors(more: dict[str, Any], says: str, tmp_path: Path) -> None:
    def make(rng: np.random.Generator, rows: int, n: int) -> tuple[Parts, np.ndarray]:
        parts, meant = hqq(rng, rows, n)
        return parts | {name: ("I32", np.array(value, np.int32)) for name, value in more.items()}, meant

    write(tmp_path / "model", SETTINGS, make)
    with pytest.raises(HybridError, match=says):
        plan(tmp_path / "model")


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"weight_quant_params": {"nbits": 5}}, "weight_quant_params: nbits = 5 is not supported"),
        ({"scale_quant_params": {"nbits": 8}}, "scale_quant_params = .* is not supported"),
        ({"learned": True}, "quant_config: learned = true is not understood"),
        ({"weight_quant_params": {"nbits": 4, "rotated": 1}}, "weight_quant_params: rotated = 1 is not understood"),
        ({"weight_quant_params": {"view_as_float": True}}, "view_as_float = true is not supported"),
    ],
)
def test_refused_settings(more: dict[str, Any], says: str, tmp_path: Path) -> None:
    write(tmp_path / "model", SETTINGS, hqq)
    change(tmp_path / "model", "quantization_config", quant_config=more)
    with pytest.raises(HybridError, match=says):
        plan(tmp_path / "model")
