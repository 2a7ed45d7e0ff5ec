"""Llamas of one layer with quantized matrices, for tests of the layouts of quantized checkpoints."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import random_checkpoints
from random_checkpoints import complete
from typed_safetensors import save

from hybrid.convert.checkpoint import Checkpoint
from hybrid.convert.checkpoint.dequantized import DequantizedTensor
from hybrid.convert.checkpoint.quantized import plain

Parts = dict[str, tuple[str, np.ndarray]]  # end of the name -> type in safetensors, values
Make = Callable[..., tuple[Parts, np.ndarray]]  # (rng, rows, columns, ...) -> parts of a matrix, its values
FINITE = np.array([c for c in range(256) if c & 127 != 127], np.uint8)  # codes of E4M3
# Rows and columns of these linear layers are not all whole blocks.
LINEAR = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": random_checkpoints.N_VOCAB,
    "hidden_size": 64,
    "max_position_embeddings": 64,
    "torch_dtype": "bfloat16",
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "intermediate_size": 96,
}


def bf16(values: np.ndarray) -> np.ndarray:
    return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def scales(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return (rng.uniform(0.5, 2, shape) / 512).astype(np.float32)


def words(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.integers(-(2**31), 2**31, shape, dtype=np.int64).astype(np.int32)


def codes(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.integers(0, 256, shape, dtype=np.uint8)


def values_of(parts: Parts) -> dict[str, np.ndarray]:
    """The parts as the twins take them: BF16 as numbers."""
    return {
        name: (v.astype(np.uint32) << 16).view(np.float32) if kind == "BF16" else v for name, (kind, v) in parts.items()
    }


def write(
    folder: Path,
    settings: dict[str, Any],
    make: Make,
    *,
    metadata: Callable[[str, tuple[int, ...]], str] | None = None,
    config: dict[str, Any] = CONFIG,
    **more: Any,
) -> dict[str, np.ndarray]:
    """Write a quantized Llama of one layer; return the decoded matrices under Hugging Face's names. `settings`: fields
    of config.json beside the model's, which are `config`. `metadata`: text in the header of the file about a matrix."""
    rng, expected, tensors, noted = np.random.default_rng(9), {}, {}, {}
    for full, values in random_checkpoints.tensors(complete(config)).items():
        if any(f"{part}.weight" in full for part in LINEAR):
            parts, meant = make(rng, *values.shape, **more)
            tensors |= {full.removesuffix("weight") + end: part for end, part in parts.items()}
            expected[full] = meant
            if metadata:
                noted[full] = metadata(full, values.shape)
        else:
            tensors[full] = ("F32", values) if values.ndim < 2 else ("BF16", bf16(values))
    folder.mkdir(exist_ok=True)
    save(folder / "model.safetensors", tensors, noted)
    (folder / "config.json").write_text(json.dumps({**complete(config), **settings}))
    return expected


def change(folder: Path, key: str, **settings: Any) -> None:
    """Change fields of an object of config.json."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps({**config, key: config[key] | settings}))


def compare(folder: Path, expected: dict[str, np.ndarray], tolerance: float = 0.0) -> None:
    """Compare the read matrices with their values, in pieces; the tolerance is a part of each value."""
    checkpoint = Checkpoint(folder)
    tensors = plain(checkpoint.tensors, checkpoint.config)
    others = {key for key in checkpoint.tensors if "norm" in key or "embed" in key or "lm_head" in key}
    assert {key for key in tensors if not key.endswith(".bias")} == set(expected) | others
    for key, meant in expected.items():
        tensor, flat = tensors[key], meant.astype(np.float32).reshape(-1)
        assert isinstance(tensor, DequantizedTensor) and tensor.shape == meant.shape
        for start, stop in (
            (0, tensor.size), (1, 2), (meant.shape[1] * 5 + 3, meant.shape[1] * 21), (tensor.size - 7, tensor.size)
        ):  # fmt: skip
            got = tensor.read(start, stop)
            np.testing.assert_allclose(got, flat[start:stop], rtol=tolerance, atol=0, err_msg=key)
        part = tensor.part((9, 0), (13, meant.shape[1]))
        np.testing.assert_allclose(
            part.floats(0, part.size), meant[9:22].astype(np.float32).reshape(-1), rtol=tolerance, atol=0
        )
