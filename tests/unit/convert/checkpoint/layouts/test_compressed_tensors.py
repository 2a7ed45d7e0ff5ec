"""compressed-tensors' 4-bit floats and groups of different formats, against a slow twin."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from quantized_llama import FINITE, Parts, bf16, change, codes, compare, scales, values_of, words, write
from reference import quantized_checkpoints as twin

from hybrid.convert import plan
from hybrid.quant.ggml.errors import HybridError

NVFP4 = "nvfp4-pack-quantized"
GLOBAL = np.float32(731.5)


def nvfp4(rng: np.random.Generator, rows: int, n: int) -> tuple[Parts, np.ndarray]:
    parts: Parts = {
        "weight_packed": ("U8", codes(rng, rows, n // 2)),
        "weight_scale": ("F8_E4M3", rng.integers(0, 127, (rows, n // 16), dtype=np.uint8)),
        "weight_global_scale": ("F32", np.array([GLOBAL])),
        "input_global_scale": ("F32", np.array([3.5], np.float32)),
    }
    return parts, twin.block_floats(parts["weight_packed"][1], parts["weight_scale"][1], 16, factor=1 / float(GLOBAL))


def mxfp4(rng: np.random.Generator, rows: int, n: int) -> tuple[Parts, np.ndarray]:
    parts: Parts = {
        "weight_packed": ("U8", codes(rng, rows, n // 2)),
        "weight_scale": ("U8", rng.integers(100, 130, (rows, n // 32), dtype=np.uint8)),
    }
    return parts, twin.block_floats(parts["weight_packed"][1], parts["weight_scale"][1], 32)


def channels(rng: np.random.Generator, rows: int, n: int) -> tuple[Parts, np.ndarray]:
    parts: Parts = {
        "weight": ("F8_E4M3", rng.choice(FINITE, (rows, n))),
        "weight_scale": ("BF16", bf16(scales(rng, rows, 1))),
    }
    return parts, twin.in_place(values_of(parts), twin.e4m3, "weight_scale")


def blocks(rng: np.random.Generator, rows: int, n: int, high: int, wide: int) -> tuple[Parts, np.ndarray]:
    parts: Parts = {
        "weight": ("F8_E4M3", rng.choice(FINITE, (rows, n))),
        "weight_scale": ("F32", scales(rng, -(-rows // high), -(-n // wide))),
    }
    return parts, twin.in_place(values_of(parts), twin.e4m3, "weight_scale", (high, wide))


def integers(rng: np.random.Generator, rows: int, n: int) -> tuple[Parts, np.ndarray]:
    parts: Parts = {
        "weight_packed": ("I32", words(rng, rows, n // 8)),
        "weight_scale": ("BF16", bf16(scales(rng, rows, n // 16))),
        "weight_shape": ("I64", np.array([rows, n])),
    }
    return parts, twin.packed(values_of(parts), 4)


def group(kind: str, *targets: str, **weights: Any) -> dict[str, Any]:
    activations = {"num_bits": 4, "type": "float", "dynamic": "local"}
    return {
        "format": kind,
        "targets": list(targets),
        "weights": {"num_bits": 4, "type": "float", "observer": "minmax", **weights},
        "input_activations": activations,
    }


def settings(kind: str, *groups: dict[str, Any]) -> dict[str, Any]:
    named = {f"group_{i}": one for i, one in enumerate(groups)}
    return {
        "quantization_config": {
            "quant_method": "compressed-tensors",
            "format": kind,
            "config_groups": named,
            "ignore": ["lm_head"],
            "transform_config": {},
            "sparsity_config": {},
            "kv_cache_scheme": None,
        }
    }


def test_nvfp4(tmp_path: Path) -> None:
    """The factor, 1 / weight_global_scale, is rounded to f32."""
    expected = write(tmp_path / "model", settings(NVFP4, group(NVFP4, "Linear")), nvfp4)
    compare(tmp_path / "model", expected, 2e-7)


def test_every_group_has_its_format(tmp_path: Path) -> None:
    """One group with blocks is named by a class, one by a module; their scales have equal
    numbers of rows and columns, so that the shapes do not tell them apart."""
    makes = {
        "q_proj": nvfp4, "k_proj": channels, "v_proj": integers, "o_proj": mxfp4,
        "gate_proj": lambda *a: blocks(*a, 32, 40), "up_proj": lambda *a: blocks(*a, 40, 32),
        "down_proj": lambda *a: blocks(*a, 32, 40),
    }  # fmt: skip
    order = iter([*("q_proj", "k_proj", "v_proj", "o_proj"), *("gate_proj", "up_proj", "down_proj")])
    names = []

    def make(rng: np.random.Generator, rows: int, n: int) -> tuple[Parts, np.ndarray]:
        names.append(next(order))
        return makes[names[-1]](rng, rows, n)

    block = {"strategy": "block", "num_bits": 8}
    groups = (
        group(NVFP4, "re:.*q_proj$"),
        group("float-quantized", "re:.*k_proj", strategy="channel", num_bits=8),
        group("float-quantized", "Linear", block_structure=[32, 40], **block),
        group("pack-quantized", "re:.*v_proj", type="int"),
        group("mxfp4-pack-quantized", "model.layers.0.self_attn.o_proj"),
        group("float-quantized", "model.layers.0.mlp.up_proj", block_structure=[40, 32], **block),
    )
    expected = write(tmp_path / "model", settings("mixed-precision", *groups), make)
    assert [name.split(".")[-2] for name in expected] == names
    compare(tmp_path / "model", expected, 2e-7)


def test_a_factor_that_is_lacking(tmp_path: Path) -> None:
    def make(rng: np.random.Generator, rows: int, n: int) -> tuple[Parts, np.ndarray]:
        parts, meant = nvfp4(rng, rows, n)
        return {name: part for name, part in parts.items() if "global" not in name}, meant

    write(tmp_path / "model", settings(NVFP4, group(NVFP4, "Linear")), make)
    with pytest.raises(HybridError, match=r"lacks .*weight_global_scale, which its quantized weights need"):
        plan(tmp_path / "model")


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"format": "marlin-24"}, "format = marlin-24 cannot be read"),
        ({"transform_config": {"config_groups": {"u": 1}}}, "transform_config is not supported"),
        ({"sparsity_config": {"format": "2:4"}}, "sparsity_config is not supported"),
        ({"rotated": True}, "rotated = true is not understood"),
        ({"config_groups": {"g": group(NVFP4, strategy="tree")}}, 'weights: strategy = "tree" is not supported'),
        (
            {"config_groups": {"g": {**group(NVFP4), "format": "new"}}},
            "g: format = new cannot be read",
        ),
        ({"config_groups": {"g": group(NVFP4, type="nf")}}, 'weights: type = "nf" is not supported'),
        ({"config_groups": {"g": group(NVFP4, lut=[1])}}, r"weights: lut = \[1\] is not understood"),
        ({"config_groups": {"g": {**group(NVFP4), "smooth": 1}}}, "g: smooth = 1 is not understood"),
        ({"config_groups": {"g": group(NVFP4, "re:(")}}, "targets = .* regular expressions after re:"),
    ],
)
def test_refused_settings(more: dict[str, Any], says: str, tmp_path: Path) -> None:
    write(tmp_path / "model", settings(NVFP4, group(NVFP4, "Linear")), nvfp4)
    change(tmp_path / "model", "quantization_config", **more)
    with pytest.raises(HybridError, match=says):
        plan(tmp_path / "model")
