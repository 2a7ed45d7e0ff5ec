"""torchao's integers in flattened tensor subclasses, against a slow twin."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from quantized_llama import Parts, bf16, change, compare, scales, values_of, write
from reference import quantized_checkpoints as twin

from hybrid.convert import plan
from hybrid.quant.ggml.errors import HybridError

PREFIX = "_weight_"


def integers(
    rng: np.random.Generator, rows: int, n: int, group: int = 0, zeros: bool = True
) -> tuple[Parts, np.ndarray]:
    wide = group or n
    parts: Parts = {
        "qdata": ("I8", rng.integers(-8, 8, (rows, n), dtype=np.int8)),
        "scale": ("BF16", bf16(scales(rng, rows, n // wide))) if group else ("F32", scales(rng, rows, 1)),
    }
    if zeros:
        parts["zero_point"] = ("I8", rng.integers(-9, 9, (rows, n // wide), dtype=np.int8))
    by_twin = {"qdata": "weight", "scale": "weight_scale", "zero_point": "weight_zero_point"}
    meant = twin.in_place({by_twin[k]: v for k, v in values_of(parts).items()}, float, "weight_scale")
    return {PREFIX + name: part for name, part in parts.items()}, meant


def described(kind: str, group: int = 0, **more: Any) -> Any:
    def text(_: str, shape: tuple[int, ...]) -> str:
        data = {"block_size": [1, group or shape[1]], "dtype": {"_type": "torch.dtype", "_data": "bfloat16"}}
        names = ["zero_point", "qdata", "scale"]
        return json.dumps({"_type": kind, "_data": data, "_tensor_data_names": names, **more})

    return text


def settings(kind: str) -> dict[str, Any]:
    return {"quantization_config": {"quant_method": "torchao", "quant_type": {"default": {"_type": kind, "_data": {}}}}}


def test_rows(tmp_path: Path) -> None:
    about = described("Int8Tensor")
    compare(tmp_path / "model", write(tmp_path / "model", settings("Int8WeightOnlyConfig"), integers, metadata=about))


def test_groups(tmp_path: Path) -> None:
    about = described("IntxUnpackedToInt8Tensor", 32)
    found = write(tmp_path / "model", settings("IntxWeightOnlyConfig"), integers, metadata=about, group=32)
    compare(tmp_path / "model", found)


def test_without_zero_points(tmp_path: Path) -> None:
    about = described("Int8Tensor", _tensor_data_names=["qdata", "scale"])
    found = write(tmp_path / "model", settings("Int8WeightOnlyConfig"), integers, metadata=about, zeros=False)
    compare(tmp_path / "model", found)


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"_type": "Int4Tensor"}, 'metadata of .*: _type = "Int4Tensor" is not supported, only "Int8Tensor" or'),
        ({"_tensor_data_names": ["qdata", "scale", "pre_scale"]}, "_tensor_data_names = .* expected qdata, scale and"),
        ({"_data": {"block_size": [1, 48]}}, r"scale is F32 \[64, 1\] for \[64, 64\] in blocks of \[1, 48\]"),
        ({"_data": {"block_size": 32}}, "block_size = 32 .* expected two positive integers"),
        ({"_data": {"block_size": [1, 64], "codebook": [1]}}, r"codebook = \[1\] is not understood"),
    ],
)
def test_refused_tensors(more: dict[str, Any], says: str, tmp_path: Path) -> None:
    write(tmp_path / "model", settings("Int8WeightOnlyConfig"), integers, metadata=described("Int8Tensor", **more))
    with pytest.raises(HybridError, match=says):
        plan(tmp_path / "model")


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"quant_type": {"default": {"_type": "Int4WeightOnlyConfig"}}}, '_type = "Int4WeightOnlyConfig" is not supp'),
        ({"quant_type": {"of_experts": {"_type": "Int8WeightOnlyConfig"}}}, "quant_type: of_experts is not supported"),
        ({"rotation": "spin"}, 'rotation = "spin" is not understood'),
        ({"quant_type": {"default": {"_data": {"sparse": "2:4"}}}}, '_data: sparse = "2:4" is not understood'),
    ],
)
def test_refused_settings(more: dict[str, Any], says: str, tmp_path: Path) -> None:
    write(tmp_path / "model", settings("Int8WeightOnlyConfig"), integers, metadata=described("Int8Tensor"))
    change(tmp_path / "model", "quantization_config", **more)
    with pytest.raises(HybridError, match=says):
        plan(tmp_path / "model")
