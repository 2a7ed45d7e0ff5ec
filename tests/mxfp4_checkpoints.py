"""gpt-oss and DeepSeek-V4 in their published formats: random experts in MXFP4 (OCP Microscaling Formats 1.0,
arXiv:2310.10537), and matrices of DeepSeek-V4 in FP8."""

import json
from pathlib import Path

import numpy as np
from reference.quantized_checkpoints import e4m3
from safetensors.numpy import load_file, save_file
from typed_safetensors import save

E2M1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0]
MATRICES = ("gate_up_proj", "down_proj")
FILE = "model.safetensors"
_E4M3 = np.array([e4m3(code) for code in range(256)])


def pack(folder: Path) -> None:
    """Replace a checkpoint's experts by blocks of random codes and scales."""
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
    """Replace the experts of Kimi K3 by random ones in the format of compressed-tensors, and add its settings to the
    config."""
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
    """The checkpoint's tensors with unpacked rows."""
    tensors = load_file(folder / FILE)
    for name in [name for name in tensors if name.endswith("_packed")]:
        base = name.removesuffix("_packed")
        scales = tensors.pop(base + "_scale")[None]
        values = _meaning(tensors.pop(name).reshape(*scales.shape, 16), scales)
        tensors[base] = np.ascontiguousarray(values[0].astype(np.float32))
    return tensors


def unpacked(folder: Path) -> dict[str, np.ndarray]:
    """The checkpoint's tensors with unpacked blocks, f32, one block after the other."""
    tensors = load_file(folder / FILE)
    for name in [name for name in tensors if name.endswith("_blocks")]:
        base = name.removesuffix("_blocks")
        values = _meaning(tensors.pop(name), tensors.pop(base + "_scales"))
        tensors[base] = np.ascontiguousarray(values.astype(np.float32).swapaxes(1, 2))
    return tensors


def _meaning(blocks: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """Values [expert, row, column] of packed codes and scales."""
    codes = np.stack([blocks & 15, blocks >> 4], axis=-1).reshape(*scales.shape, 32)
    values = np.asarray(E2M1)[codes] * 2.0 ** (scales[..., None].astype(np.float64) - 127)
    return values.reshape(*scales.shape[:2], -1)


def publish_deepseek4(folder: Path, block: int = 0) -> dict[str, np.ndarray]:
    """Store experts in MXFP4 and, with a `block`, matrices of attention, shared experts and heads in FP8, whose blocks
    of block x block values share a power of two. Returns the values that the tensors stand for."""
    in_fp8 = ".attn.w", ".shared_experts.", ".indexer.wq_b", ".e_proj", ".h_proj"
    meant, rng = load_file(folder / FILE), np.random.default_rng(3)
    for x in meant.values():
        if x.dtype == np.float32:
            x.view(np.uint32)[...] &= 0xFFFF0000  # representable in BF16
    stored = {name: ("I64" if x.dtype == np.int64 else "F32", x) for name, x in meant.items()}
    for name, x in list(meant.items()):
        scale = name.removesuffix("weight") + "scale"
        if ".ffn.experts." in name:
            codes = rng.integers(0, 256, (x.shape[0], x.shape[1] // 2), np.uint8)
            powers = rng.integers(121, 125, (x.shape[0], x.shape[1] // 32), np.uint8)
            stored[name], stored[scale] = ("I8", codes), ("F8_E8M0", powers)
            meant[name] = _meaning(codes.reshape(1, *powers.shape, 16), powers[None])[0].astype(np.float32)
        elif block and any(part in name for part in in_fp8):
            codes = rng.integers(0, 0x60, x.shape, np.uint8) | rng.integers(0, 2, x.shape, np.uint8) << 7
            powers = rng.integers(114, 117, [-(-n // block) for n in x.shape], np.uint8)
            stored[name], stored[scale] = ("F8_E4M3", codes), ("F8_E8M0", powers)
            spread = np.repeat(np.repeat(powers, block, 0), block, 1)[: x.shape[0], : x.shape[1]]
            meant[name] = (_E4M3[codes] * 2.0 ** (spread.astype(np.float64) - 127)).astype(np.float32)
    save(folder / FILE, stored)
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {
        "activation_scheme": "dynamic",
        "fmt": "e4m3",
        "quant_method": "fp8",
        "scale_fmt": "ue8m0",
        "weight_block_size": [block or 128] * 2,
    }
    (folder / "config.json").write_text(json.dumps({**config, "expert_dtype": "fp4", "torch_dtype": "bfloat16"}))
    return meant
