"""Random LoRA adapters in PEFT's format for random checkpoints, and the checkpoints with a merged adapter."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

_PIECE = re.compile(r"(.+\.weight)\.(\d+)")  # a part of a matrix that the converter splits by rows


def modules(tensors: dict[str, np.ndarray]) -> dict[str, list[str]]:
    """The linear layers: name of the weight -> the tensors that hold its rows, in order."""
    layers: dict[str, list[str]] = {}
    for name, values in tensors.items():
        match = _PIECE.fullmatch(name)
        whole = match[1] if match else name
        if values.ndim == 2 and whole.endswith(".weight") and not re.search("embed|norm|conv", whole):
            layers.setdefault(whole, []).append(name)
    return {
        name: sorted(parts, key=lambda part: int(part.rpartition(".")[2]) if part != name else 0)
        for name, parts in layers.items()
    }


def factors(tensors: dict[str, np.ndarray], rank: int = 3, seed: int = 7) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Factors f32 A [rank, n] and B [rows, rank] of every linear layer; B A has the magnitude of the weights."""
    rng = np.random.default_rng(seed)
    thin = {}
    for name, parts in modules(tensors).items():
        rows, n = sum(len(tensors[part]) for part in parts), tensors[parts[0]].shape[1]
        a = rng.standard_normal((rank, n)) / np.sqrt(n)
        thin[name] = a.astype(np.float32), rng.standard_normal((rows, rank)).astype(np.float32)
    return thin


def write(folder: Path, thin: dict[str, tuple[np.ndarray, np.ndarray]], alpha: float, **settings: Any) -> Path:
    """Write adapter_config.json and adapter_model.safetensors."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {}
    for name, pair in thin.items():
        for half, values in zip("AB", pair, strict=True):
            full = f"base_model.model.{name.removesuffix('.weight')}.lora_{half}.weight"
            tensors[full] = np.ascontiguousarray(values)
    save_file(tensors, folder / "adapter_model.safetensors")
    rank = len(next(iter(thin.values()))[0])
    config = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": rank, "lora_alpha": alpha, "lora_dropout": 0.05,
              "bias": "none", "fan_in_fan_out": False, "use_dora": False, "use_rslora": False, "modules_to_save": None,
              "base_model_name_or_path": "some/base", **settings}  # fmt: skip
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return folder


def merged(
    tensors: dict[str, np.ndarray], thin: dict[str, tuple[np.ndarray, np.ndarray]], factor: float
) -> dict[str, np.ndarray]:
    """The weights plus factor * B A, f64."""
    result = {name: values.astype(np.float64) for name, values in tensors.items()}
    for name, parts in modules(tensors).items():
        if name not in thin:
            continue
        a, b = (half.astype(np.float64) for half in thin[name])
        first = 0
        for part in parts:
            rows = len(tensors[part])
            result[part] += factor * b[first : first + rows] @ a
            first += rows
    return result
