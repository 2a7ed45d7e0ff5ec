"""bitsandbytes' 4 and 8 bits, against a slow twin."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from quantized_llama import Parts, change, codes, compare, scales, write
from reference import quantized_checkpoints as twin

from hybrid.convert import plan
from hybrid.quant.ggml.errors import HybridError

Changes = dict[str, tuple[str, np.ndarray]]


def four_bits(
    rng: np.random.Generator,
    rows: int,
    n: int,
    kind: str = "nf4",
    block: int = 64,
    nested: bool = False,
    storage: str = "U8",
    changes: Changes | None = None,
    **more: Any,
) -> tuple[Parts, np.ndarray]:
    n_blocks, end = -(-rows * n // block), f"weight.quant_state.bitsandbytes__{kind}"
    stored = codes(rng, rows * n // 2).view({"U8": "u1", "BF16": "u2", "F32": "f4"}[storage])
    state = {"quant_type": kind, "blocksize": block, "dtype": "bfloat16", "shape": [rows, n], **more}
    parts: Parts = {
        "weight": (storage, stored.reshape(-1, 1)),
        "weight.quant_map": ("F32", np.sort(rng.normal(size=16)).astype(np.float32)),
        "weight.absmax": ("F32", scales(rng, n_blocks)),
    }
    nesting: dict[str, Any] = {}
    if nested:
        parts["weight.absmax"] = ("U8", codes(rng, n_blocks))
        parts["weight.nested_quant_map"] = ("F32", np.sort(rng.normal(size=256)).astype(np.float32))
        parts["weight.nested_absmax"] = ("F32", scales(rng, -(-n_blocks // 24)))
        nesting = {"nested_block": 24, "offset": 0.0625}
        state |= {"nested_blocksize": 24, "nested_dtype": "float32", "nested_offset": 0.0625}
    meant = twin.bnb_four_bits({name: v for name, (_, v) in parts.items()}, (rows, n), block, **nesting)
    parts[end] = ("U8", np.frombuffer(json.dumps(state).encode(), np.uint8))
    return parts | (changes or {}), meant


def eight_bits(rng: np.random.Generator, rows: int, n: int, order: int = 0) -> tuple[Parts, np.ndarray]:
    parts: Parts = {
        "weight": ("I8", rng.integers(-127, 128, (rows, n), dtype=np.int8)),
        "SCB": ("F32", scales(rng, rows) * 127),
        "weight_format": ("U8", np.array(order, np.uint8)),
    }
    return parts, parts["weight"][1].astype(np.float64) * (parts["SCB"][1].astype(np.float64) / 127)[:, None]


FOUR = {"quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}}
EIGHT = {"quantization_config": {"quant_method": "bitsandbytes", "load_in_8bit": True, "llm_int8_threshold": 6.0}}


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"nested": True},
        {"kind": "fp4", "storage": "BF16"},
        {"block": 40, "nested": True},  # blocks run over the ends of rows
        {"storage": "F32"},
    ],
)
def test_four_bits(more: dict[str, Any], tmp_path: Path) -> None:
    """Equal to the bit: a product, rounded once."""
    compare(tmp_path / "model", write(tmp_path / "model", FOUR, four_bits, **more))


def test_eight_bits(tmp_path: Path) -> None:
    """Two roundings: of SCB / 127, and of the product."""
    compare(tmp_path / "model", write(tmp_path / "model", EIGHT, eight_bits), 2e-7)


@pytest.mark.parametrize(
    ("settings", "more", "says"),
    [
        ({"bnb_4bit_quant_type": "af4"}, {}, 'bnb_4bit_quant_type = "af4" is not supported, only "nf4" or "fp4" is'),
        ({"bnb_8bit_rotation": 4}, {}, "bnb_8bit_rotation = 4 is not understood"),
        ({}, {"kind": "int4"}, "bitsandbytes' int4 is not read; nf4 and fp4 are"),
        ({}, {"quant_type": "int4"}, 'quant_type = "int4" is not supported'),
        ({}, {"shape": [4]}, r"shape = \[4\] .* expected rows and columns"),
        ({}, {"shape": [64, 66]}, r"has 3072 bytes, 96 scales and 16 values of codes for \[64, 66\] in blocks of 64"),
        ({}, {"nested": True, "changes": {"weight.nested_absmax": ("F32", np.ones(1, np.float32))}}, "do not fit 96"),
    ],
)
def test_refused(settings: dict[str, Any], more: dict[str, Any], says: str, tmp_path: Path) -> None:
    write(tmp_path / "model", FOUR, four_bits, **more)
    change(tmp_path / "model", "quantization_config", **settings)
    with pytest.raises(HybridError, match=says):
        plan(tmp_path / "model")


def test_nested_scales_that_are_lacking(tmp_path: Path) -> None:
    def make(rng: np.random.Generator, rows: int, n: int) -> tuple[Parts, np.ndarray]:
        parts, meant = four_bits(rng, rows, n, nested=True)
        return {name: part for name, part in parts.items() if "nested_absmax" not in name}, meant

    write(tmp_path / "model", FOUR, make)
    with pytest.raises(HybridError, match=r"lacks .*weight\.nested_absmax, which its quantized weights need"):
        plan(tmp_path / "model")


def test_rows_in_another_order(tmp_path: Path) -> None:
    write(tmp_path / "model", EIGHT, eight_bits, order=2)
    with pytest.raises(HybridError, match=r"weight_format is 2: only rows in order \(0\) are read"):
        plan(tmp_path / "model")
