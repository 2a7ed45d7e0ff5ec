"""The tensors of files with vision towers, one by one from a checkpoint's own: slow, and by other words than
`convert/vision`. Each name of a file gives a function of the checkpoint's tensors (f32, by their names)."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

Tensors = dict[str, np.ndarray]
Made = Iterator[tuple[str, np.ndarray]]


def _pairs(tensors: Tensors, names: dict[str, str]) -> Made:
    for target, source in names.items():
        for end in ("weight", "bias"):
            if f"{source}.{end}" in tensors:
                yield f"{target}.{end}", tensors[f"{source}.{end}"]


def _frames(kernel: np.ndarray) -> Made:
    yield "v.patch_embd.weight", np.stack([kernel[:, c, 0] for c in range(3)], axis=1)
    yield "v.patch_embd.weight.1", np.stack([kernel[:, c, 1] for c in range(3)], axis=1)


def qwen3_vl(tensors: Tensors, config: dict[str, Any]) -> Made:
    """Qwen3-VL and Qwen3.5."""
    hf, vision = "model.visual.", config["vision_config"]
    yield from _frames(tensors[f"{hf}patch_embed.proj.weight"])
    yield "v.patch_embd.bias", tensors[f"{hf}patch_embed.proj.bias"]
    merger = {"v.post_ln": "norm", "mm.0": "linear_fc1", "mm.2": "linear_fc2"}
    yield from _pairs(tensors, {"v.position_embd": f"{hf}pos_embed"})
    yield from _pairs(tensors, {target: f"{hf}merger.{name}" for target, name in merger.items()})
    for k, layer in enumerate(vision.get("deepstack_visual_indexes", [])):
        parts = {"norm": "norm", "fc1": "linear_fc1", "fc2": "linear_fc2"}
        old = f"{hf}deepstack_merger_list.{k}."
        yield from _pairs(tensors, {f"v.deepstack.{layer}.{new}": old + name for new, name in parts.items()})
    parts = {
        "ln1": "norm1", "ln2": "norm2", "attn_qkv": "attn.qkv", "attn_out": "attn.proj", "ffn_up": "mlp.linear_fc1",
        "ffn_down": "mlp.linear_fc2",
    }  # fmt: skip
    for i in range(vision["depth"]):
        yield from _pairs(tensors, {f"v.blk.{i}.{new}": f"{hf}blocks.{i}.{old}" for new, old in parts.items()})


def _siglip(tensors: Tensors, hf: str, n_layer: int) -> Made:
    names = {
        "v.patch_embd": "embeddings.patch_embedding", "v.position_embd": "embeddings.position_embedding",
        "v.post_ln": "post_layernorm",
    }  # fmt: skip
    parts = {
        "ln1": "layer_norm1", "ln2": "layer_norm2", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
        "attn_v": "self_attn.v_proj", "attn_out": "self_attn.out_proj", "ffn_up": "mlp.fc1", "ffn_down": "mlp.fc2",
    }  # fmt: skip
    for i in range(n_layer):
        names |= {f"v.blk.{i}.{new}": f"encoder.layers.{i}.{old}" for new, old in parts.items()}
    yield from _pairs(tensors, {new: hf + old for new, old in names.items()})


def smolvlm(tensors: Tensors, config: dict[str, Any]) -> Made:
    """SmolVLM and Idefics 3."""
    yield from _siglip(tensors, "model.vision_model.", config["vision_config"]["num_hidden_layers"])
    yield from _pairs(tensors, {"mm.model.fc": "model.connector.modality_projection.proj"})


TOWERS: dict[str, Callable[[Tensors, dict[str, Any]], Made]] = {
    "Qwen3_5ForConditionalGeneration": qwen3_vl,
    "SmolVLMForConditionalGeneration": smolvlm,
}
