"""gpt-oss as it is published: random experts in MXFP4 (OCP Microscaling Formats 1.0, arXiv:2310.10537)."""

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

E2M1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0]
MATRICES = ("gate_up_proj", "down_proj")
FILE = "model.safetensors"


def pack(folder: Path) -> None:
    """Puts blocks of random codes and scales in the place of a checkpoint's experts."""
    tensors, rng = load_file(folder / FILE), np.random.default_rng(3)
    for name in [name for name in tensors if name.endswith(MATRICES)]:
        n_expert, n_in, n_out = tensors.pop(name).shape
        tensors[name + "_blocks"] = rng.integers(0, 256, (n_expert, n_out, n_in // 32, 16), np.uint8)
        tensors[name + "_scales"] = rng.integers(121, 125, (n_expert, n_out, n_in // 32), np.uint8)
    save_file(tensors, folder / FILE, metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}
    (folder / "config.json").write_text(json.dumps(config))


def pack_rows(folder: Path) -> None:
    """Packs the experts of Kimi K3 as compressed-tensors does, and puts the settings where its config has them."""
    tensors, rng = load_file(folder / FILE), np.random.default_rng(3)
    for name in [name for name in tensors if ".block_sparse_moe.experts." in name]:
        n_row, n_in = tensors.pop(name).shape
        tensors[name + "_packed"] = rng.integers(0, 256, (n_row, n_in // 2), np.uint8)
        tensors[name + "_scale"] = rng.integers(121, 125, (n_row, n_in // 32), np.uint8)
    save_file(tensors, folder / FILE, metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "compressed-tensors", "format": "mxfp4-pack-quantized"}
    nested = {"architectures": config.pop("architectures"), "text_config": config}
    (folder / "config.json").write_text(json.dumps(nested))


def unpacked_rows(folder: Path) -> dict[str, np.ndarray]:
    """Its tensors with what the rows stand for."""
    tensors = load_file(folder / FILE)
    for name in [name for name in tensors if name.endswith("_packed")]:
        base = name.removesuffix("_packed")
        scales = tensors.pop(base + "_scale")[None]
        values = _meaning(tensors.pop(name).reshape(*scales.shape, 16), scales)
        tensors[base] = np.ascontiguousarray(values[0].astype(np.float32))
    return tensors


def unpacked(folder: Path) -> dict[str, np.ndarray]:
    """Its tensors with what the blocks stand for, f32, one block after the other."""
    tensors = load_file(folder / FILE)
    for name in [name for name in tensors if name.endswith("_blocks")]:
        base = name.removesuffix("_blocks")
        values = _meaning(tensors.pop(name), tensors.pop(base + "_scales"))
        tensors[base] = np.ascontiguousarray(values.astype(np.float32).swapaxes(1, 2))
    return tensors


def _meaning(blocks: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """[expert, row, column]"""
    values = np.empty((*scales.shape, 32))
    for at in np.ndindex(*scales.shape):
        for k, byte in enumerate(blocks[at].tolist()):
            for half in range(2):
                values[(*at, 2 * k + half)] = E2M1[byte >> 4 * half & 15] * 2.0 ** (int(scales[at]) - 127)
    return values.reshape(*scales.shape[:2], -1)
