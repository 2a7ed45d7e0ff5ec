"""ModelOpt's FP8, NVFP4 and MX formats, against a slow twin."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from quantized_llama import FINITE, Make, Parts, change, codes, compare, scales, write
from reference import quantized_checkpoints as twin

from hybrid.convert import plan
from hybrid.quant.ggml.errors import HybridError

TWO = np.float32(0.0173)


def nvfp4(rng: np.random.Generator, rows: int, n: int, pre: bool = False) -> tuple[Parts, np.ndarray]:
    parts: Parts = {
        "weight": ("U8", codes(rng, rows, n // 2)),
        "weight_scale": ("F8_E4M3", rng.integers(0, 127, (rows, n // 16), dtype=np.uint8)),
        "weight_scale_2": ("F32", np.array(TWO)),
        "input_scale": ("F32", np.array(0.5, np.float32)),
    }
    meant = twin.block_floats(parts["weight"][1], parts["weight_scale"][1], 16, factor=float(TWO))
    if pre:
        factors = rng.uniform(0.5, 2, n).astype(np.float32)
        parts["pre_quant_scale"] = ("F32", factors)
        meant = meant * factors
    return parts, meant


def mxfp4(rng: np.random.Generator, rows: int, n: int) -> tuple[Parts, np.ndarray]:
    parts: Parts = {
        "weight": ("U8", codes(rng, rows, n // 2)),
        "weight_scale": ("U8", rng.integers(100, 130, (rows, n // 32), dtype=np.uint8)),
    }
    return parts, twin.block_floats(parts["weight"][1], parts["weight_scale"][1], 32)


def mxfp8(rng: np.random.Generator, rows: int, n: int) -> tuple[Parts, np.ndarray]:
    parts: Parts = {
        "weight": ("F8_E4M3", rng.choice(FINITE, (rows, n))),
        "weight_scale": ("U8", rng.integers(100, 130, (rows, n // 32), dtype=np.uint8)),
    }
    return parts, twin.block_floats(parts["weight"][1], parts["weight_scale"][1], 32, bits=8)


def fp8(rng: np.random.Generator, rows: int, n: int, pre: bool = False) -> tuple[Parts, np.ndarray]:
    parts: Parts = {
        "weight": ("F8_E4M3", rng.choice(FINITE, (rows, n))),
        "weight_scale": ("F32", scales(rng, rows)),
        "k_bias": ("F32", np.ones(1, np.float32)),
    }
    meant = twin.in_place({name: v for name, (_, v) in parts.items()}, twin.e4m3, "weight_scale")
    if pre:
        parts["pre_quant_scale"] = ("F32", factors := rng.uniform(0.5, 2, n).astype(np.float32))
        meant = meant * factors
    return parts, meant


def settings(algorithm: str, **more: Any) -> dict[str, Any]:
    return {"quantization_config": {"quant_method": "modelopt", "quant_algo": algorithm, **more}}


@pytest.mark.parametrize(
    ("algorithm", "make", "more"),
    [
        ("NVFP4", nvfp4, {}),
        ("NVFP4_AWQ", nvfp4, {"pre": True}),
        ("W4A8_NVFP4_FP8", nvfp4, {}),
        ("FP8_PER_CHANNEL_PER_TOKEN", fp8, {}),
        ("FP8", fp8, {"pre": True}),
        ("MXFP8", mxfp8, {}),
        ("W4A8_MXFP4_FP8", mxfp4, {}),
    ],
)
def test_algorithms(algorithm: str, make: Make, more: dict[str, Any], tmp_path: Path) -> None:
    """A factor of the matrix is one more rounding, and factors of columns are another."""
    expected = write(tmp_path / "model", settings(algorithm), make, **more)
    compare(tmp_path / "model", expected, 2e-7)


def test_mixed_precision(tmp_path: Path) -> None:
    """A layer's algorithm shows in its tensors."""
    calls = iter(range(100))

    def either(rng: np.random.Generator, rows: int, n: int) -> tuple[Parts, np.ndarray]:
        return (fp8 if next(calls) % 2 else nvfp4)(rng, rows, n)

    layers = {"model.layers.0.mlp.up_proj": {"quant_algo": "NVFP4", "group_size": 16}}
    expected = write(tmp_path / "model", settings("MIXED_PRECISION", quantized_layers=layers), either)
    compare(tmp_path / "model", expected, 2e-7)


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"quant_algo": "W4A16_AWQ"}, 'quant_algo = "W4A16_AWQ" is not supported, only "FP8" or'),
        ({"quant_algo": "NVFP4_SVD"}, 'quant_algo = "NVFP4_SVD" is not supported'),
        ({"has_zero_point": True}, "has_zero_point = true is not supported"),
        ({"rotation": "hadamard"}, r'quantization_config: rotation = "hadamard" is not understood'),
        ({"quantized_layers": {"x": {"quant_algo": "INT4"}}}, 'x: quant_algo = "INT4" is not supported'),
        ({"quantized_layers": {"x": {"quant_algo": "FP8", "rank": 2}}}, "x: rank = 2 is not understood"),
    ],
)
def test_refused_settings(more: dict[str, Any], says: str, tmp_path: Path) -> None:
    write(tmp_path / "model", settings("NVFP4"), nvfp4)
    change(tmp_path / "model", "quantization_config", **more)
    with pytest.raises(HybridError, match=says):
        plan(tmp_path / "model")


@pytest.mark.parametrize(
    ("change_part", "says"),
    [
        ({"weight_scale": ("F8_E4M3", (1, 2))}, r"weight_scale is F8_E4M3 \[1, 2\], expected U8 or F8_E4M3 \[64, 6\]"),
        ({"weight_scale": ("F32", (64, 4))}, r"weight_scale is F32 \[64, 4\], expected"),
        ({"weight_scale_2": ("F32", (3,))}, r"weight_scale_2 is F32 \[3\] of 0, expected one positive number"),
        ({"pre_quant_scale": ("F32", (3,))}, r"pre_quant_scale is F32 \[3\], expected a factor for each column"),
        ({"svdquant_lora_a": ("BF16", (3, 64))}, "svdquant_lora_a.* that the config has no place for"),
    ],
)
def test_refused_tensors(change_part: dict[str, tuple[str, tuple[int, ...]]], says: str, tmp_path: Path) -> None:
    def make(rng: np.random.Generator, rows: int, n: int) -> tuple[Parts, np.ndarray]:
        parts, meant = nvfp4(rng, rows, n)
        sizes = {"F8_E4M3": np.uint8, "BF16": np.uint16, "F32": np.float32}
        return parts | {name: (kind, np.ones(s, sizes[kind])) for name, (kind, s) in change_part.items()}, meant

    write(tmp_path / "model", settings("NVFP4"), make)
    with pytest.raises(HybridError, match=says):
        plan(tmp_path / "model")
