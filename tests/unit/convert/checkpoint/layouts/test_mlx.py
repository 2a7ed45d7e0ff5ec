"""MLX's modes, against a slow twin."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from quantized_llama import FINITE, Parts, bf16, change, codes, compare, scales, values_of, write
from reference import quantized_checkpoints as twin

from hybrid.convert import plan
from hybrid.quant.ggml.errors import HybridError

FLOATS = {"mxfp4": (4, 32), "mxfp8": (8, 32), "nvfp4": (4, 16)}


def affine(
    rng: np.random.Generator, rows: int, n: int, bits: int, group: int, kind: str = "BF16"
) -> tuple[Parts, np.ndarray]:
    def some() -> np.ndarray:
        values = scales(rng, rows, n // group)
        return bf16(values) if kind == "BF16" else values.astype({"F16": "f2", "F32": "f4"}[kind])

    parts: Parts = {
        "weight": ("U32", codes(rng, rows, n * bits // 8).view(np.uint32)),
        "scales": (kind, some()),
        "biases": (kind, some()),
    }
    return parts, twin.mlx_affine(values_of(parts), bits, group)


def floats(rng: np.random.Generator, rows: int, n: int, mode: str) -> tuple[Parts, np.ndarray]:
    bits, group = FLOATS[mode]
    raw = rng.choice(FINITE, (rows, n)) if bits == 8 else codes(rng, rows, n // 2)
    low, high = (100, 130) if group == 32 else (0, 127)
    parts: Parts = {
        "weight": ("U32", raw.view(np.uint32)),
        "scales": ("U8", rng.integers(low, high, (rows, n // group), dtype=np.uint8)),
    }
    return parts, twin.block_floats(raw, parts["scales"][1], group, bits=bits)


def settings(mode: str | None, bits: int, group: int, **more: Any) -> dict[str, Any]:
    how = {"group_size": group, "bits": bits, **({"mode": mode} if mode else {}), **more}
    return {"quantization": how, "quantization_config": how}


@pytest.mark.parametrize("bits", [2, 3, 4, 5, 6, 8])
@pytest.mark.parametrize("kind", ["BF16", "F16"])
def test_affine(bits: int, kind: str, tmp_path: Path) -> None:
    """Equal to the bit: the product is exact, the sum is rounded once."""
    expected = write(tmp_path / "model", settings("affine", bits, 32), affine, bits=bits, group=32, kind=kind)
    compare(tmp_path / "model", expected)


@pytest.mark.parametrize("mode", FLOATS)
def test_floats(mode: str, tmp_path: Path) -> None:
    bits, group = FLOATS[mode]
    compare(tmp_path / "model", write(tmp_path / "model", settings(mode, bits, group), floats, mode=mode))


def test_a_module_has_its_own_settings(tmp_path: Path) -> None:
    """As mlx-lm writes them; older versions write neither the mode nor the second name of the settings."""
    order = iter(range(7))

    def make(rng: np.random.Generator, rows: int, n: int) -> tuple[Parts, np.ndarray]:
        i = next(order)
        return (
            floats(rng, rows, n, "mxfp8") if i == 0 else affine(rng, rows, n, 6 if i == 5 else 4, 16 if i == 5 else 32)
        )

    own = {
        "model.layers.0.self_attn.q_proj": {"group_size": 32, "bits": 8, "mode": "mxfp8"},
        "model.layers.0.mlp.up_proj": {"group_size": 16, "bits": 6},
        "model.embed_tokens": False,
    }
    written = settings(None, 4, 32, **own)
    del written["quantization_config"]
    compare(tmp_path / "model", write(tmp_path / "model", written, make))


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"mode": "nf4"}, 'quantization: mode = "nf4" is not supported, only "affine" or "mxfp4"'),
        ({"bits": 7}, "quantization: bits = 7 is not supported, only 2 or 3"),
        ({"mode": "mxfp4"}, "quantization: group_size = 16 is not supported, only 32 is"),
        ({"bits": 8}, r"scales is BF16 \[64, 6\], expected \[64, 3\] for \[64, 48\] of 8 bits in groups of 16"),
        ({"hadamard": 64}, "quantization: hadamard = 64 is not understood"),
        ({"rotation": {"kind": "hadamard"}}, 'rotation: kind = "hadamard" is not understood'),
        ({"model.layers.0.mlp.up_proj": {"bits": 4, "group_size": 16, "x": 2}}, "up_proj: x = 2 is not understood"),
    ],
)
def test_refused_settings(more: dict[str, Any], says: str, tmp_path: Path) -> None:
    write(tmp_path / "model", settings("affine", 4, 16), affine, bits=4, group=16)
    change(tmp_path / "model", "quantization", **more)
    with pytest.raises(HybridError, match=says):
        plan(tmp_path / "model")
