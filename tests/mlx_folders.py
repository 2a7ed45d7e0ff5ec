"""Folders as mlx-lm writes them, made of random checkpoints: with the changes of its `sanitize` functions (mlx-lm
0.32.2), and matrices in affine mode."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from random_checkpoints import complete, tensors
from safetensors.numpy import load_file
from typed_safetensors import save

Weights = dict[str, np.ndarray]
BITS, GROUP = 8, 4  # for matrices of any width


def whole(weights: Weights) -> Weights:
    """Joins pieces NAME.0, NAME.1, ... that random checkpoints have instead of one tensor."""
    pieces: dict[str, dict[int, np.ndarray]] = {}
    for name, values in weights.items():
        base, end, number = name.rpartition(".weight.")
        key = f"{base}.weight" if end and number.isdecimal() else name
        pieces.setdefault(key, {})[int(number) if key != name else 0] = values
    return {name: np.concatenate([some[i] for i in range(len(some))]) for name, some in pieces.items()}


def stacked(weights: Weights, pattern: str, new: str) -> Weights:
    """Stacks the experts whose names match `pattern` (one group is the number) under the names `new`."""
    kept, experts = {}, {}
    for name, values in weights.items():
        if found := re.search(pattern, name):
            key = name[: found.start()] + found.expand(new) + name[found.end() :]
            experts.setdefault(key, {})[int(found["e"])] = values
        else:
            kept[name] = values
    return kept | {key: np.stack([some[e] for e in range(len(some))]) for key, some in experts.items()}


def turned(weights: Weights, name: str = ".conv1d.weight") -> Weights:
    return {key: np.moveaxis(v, 2, 1) if key.endswith(name) else v for key, v in weights.items()}


def one_more(weights: Weights) -> Weights:
    norms = ("input_layernorm.weight", "post_attention_layernorm.weight", "model.norm.weight", "q_norm.weight",
             "k_norm.weight")  # fmt: skip
    return {name: v + np.float32(1) if name.endswith(norms) else v for name, v in weights.items()}


def qwen_next(weights: Weights) -> Weights:
    return one_more(turned(stacked(weights, r"mlp\.experts\.(?P<e>\d+)\.", "mlp.switch_mlp.")))


def qwen_3_5(weights: Weights) -> Weights:
    return {f"language_model.{name}": v for name, v in qwen_next(weights).items()}


def granite_hybrid(weights: Weights) -> Weights:
    renamed = {}
    for name, v in turned(weights).items():
        name = re.sub(r"shared_mlp\.input_linear\.weight\.(gate|up)", r"mlp.\1_proj.weight", name)
        renamed[name.replace("shared_mlp.output_linear", "mlp.down_proj")] = v
    return renamed


def granite_moe(weights: Weights) -> Weights:
    experts = r"input_linear\.weight\.(?P<half>gate|up)\.(?P<e>\d+)"
    weights = stacked(weights, experts, r"switch_mlp.\g<half>_proj.weight")
    return {name.replace("output_linear", "switch_mlp.down_proj"): v for name, v in weights.items()}


NESTED = ("qwen3_5", "qwen3_5_moe", "gemma3")  # the model is a part of one with pictures
SANITIZE: dict[str, Callable[[Weights], Weights]] = {
    "qwen3_moe": lambda w: stacked(w, r"mlp\.experts\.(?P<e>\d+)\.", "mlp.switch_mlp."),
    "olmoe": lambda w: stacked(w, r"mlp\.experts\.(?P<e>\d+)\.", "mlp.switch_mlp."),
    "qwen3_next": qwen_next,
    "qwen3_5": qwen_3_5,
    "qwen3_5_moe": qwen_3_5,
    "granitemoehybrid": granite_hybrid,
    "granitemoe": granite_moe,
    "mamba": turned,
    "mamba2": turned,
    "jamba": lambda w: turned(stacked(w, r"feed_forward\.experts\.(?P<e>\d+)\.", "feed_forward.switch_mlp.")),
    "gemma3": lambda w: {f"language_model.{name}": v for name, v in w.items()},
    "nemotron_h": turned,
    "recurrent_gemma": lambda w: turned(w, ".conv_1d.weight"),
    "lfm2": lambda w: turned(w, ".conv.weight"),
}


def quantized(values: np.ndarray) -> dict[str, tuple[str, np.ndarray]]:
    """The parts of a matrix, or of a stack of them, in 8 bits."""
    groups = values.reshape(*values.shape[:-1], -1, GROUP)
    low, high = groups.min(-1), groups.max(-1)
    step = np.maximum((high - low) / 255, np.float32(1e-9))
    q = np.clip(np.round((groups - low[..., None]) / step[..., None]), 0, 255).astype(np.uint8)
    words = q.reshape(values.shape).view("<u4")
    return {"weight": ("U32", words), "scales": ("F32", step), "biases": ("F32", low)}


# model_type -> beginnings of names in a checkpoint, and in mlx-vlm 0.7.10
TOWERS = {
    "qwen3_5": {"model.visual.": "vision_tower."},
    "qwen3_vl": {"model.visual.": "vision_tower."},
    "qwen2_5_vl": {"visual.": "vision_tower."},
    "gemma3": {},
    "lfm2_vl": {"model.vision_tower.": "vision_tower.", "model.multi_modal_projector.": "multi_modal_projector."},
    "smolvlm": {"model.vision_model.": "vision_model.", "model.connector.": "connector."},
}


def write_seeing(source: Path, model_type: str, folder: Path, *, quantize: bool) -> None:
    """Write the checkpoint of a model that sees as mlx-vlm does: patches have their colours last. quantize:
    matrices that fit, also of the tower."""
    text, stored = Weights(), dict[str, tuple[str, np.ndarray]]()
    for name, values in load_file(source / "model.safetensors").items():
        old = next((old for old in TOWERS[model_type] if name.startswith(old)), None)
        if old is None and not name.startswith(("vision_tower.", "multi_modal_projector.")):
            text[name] = values
            continue
        new = name if old is None else TOWERS[model_type][old] + name.removeprefix(old)
        is_patches = name.endswith(("patch_embed.proj.weight", "patch_embedding.weight")) and values.ndim > 2
        stored[new] = ("F32", np.ascontiguousarray(np.moveaxis(values, 1, -1) if is_patches else values))
    sanitize = {"qwen3_5": qwen_next, "lfm2_vl": SANITIZE["lfm2"]}.get(model_type, dict)
    inner = "language_model.model." if model_type != "smolvlm" else "language_model."
    for name, values in sanitize(whole(text)).items():
        stored[name.replace("model.", inner, 1) if "lm_head" not in name else f"language_model.{name}"] = (
            "F32",
            values,
        )
    if model_type == "gemma3":  # mlx-vlm adds the output matrix that is tied
        stored["language_model.lm_head.weight"] = stored["language_model.model.embed_tokens.weight"]
    if quantize:
        fits = [n for n, (_, v) in stored.items() if v.ndim == 2 and v.shape[1] % GROUP == 0 and n.endswith(".weight")]
        for name in fits:
            parts = quantized(stored.pop(name)[1])
            stored |= {name.removesuffix("weight") + end: part for end, part in parts.items()}
    folder.mkdir()
    save(folder / "model.safetensors", stored, {"format": "mlx"})
    for path in source.glob("*.json"):
        (folder / path.name).write_bytes(path.read_bytes())
    how = {"group_size": GROUP, "bits": BITS, "mode": "affine"}
    config = json.loads((source / "config.json").read_text())
    config |= {"model_type": model_type} | ({"quantization": how, "quantization_config": how} if quantize else {})
    (folder / "config.json").write_text(json.dumps(config))


def write(settings: dict[str, Any], model_type: str, folder: Path, *, quantize: bool = True) -> None:
    """Write a random model as mlx-lm does. quantize: or leave matrices alone."""
    config = complete(settings)
    weights = SANITIZE.get(model_type, dict)(whole(tensors(config)))
    stored: dict[str, tuple[str, np.ndarray]] = {}
    for name, values in weights.items():
        is_matrix = values.ndim > 1 and values.shape[-1] % GROUP == 0 and name.endswith(".weight")
        if quantize and is_matrix and "conv" not in name.rpartition(".weight")[0].rpartition(".")[2]:
            stored |= {name.removesuffix("weight") + end: part for end, part in quantized(values).items()}
        else:
            stored[name] = ("F32", np.ascontiguousarray(values))
    folder.mkdir()
    save(folder / "model.safetensors", stored, {"format": "mlx"})
    how = {"group_size": GROUP, "bits": BITS, "mode": "affine"}
    if model_type in NESTED:
        name = config["architectures"][0].replace("ForCausalLM", "ForConditionalGeneration")
        config = {"architectures": [name], "text_config": config}
    config |= {"model_type": model_type} | ({"quantization": how, "quantization_config": how} if quantize else {})
    (folder / "config.json").write_text(json.dumps(config))
