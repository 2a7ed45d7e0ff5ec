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


def qwen2_5_vl(tensors: Tensors, config: dict[str, Any]) -> Made:
    """Qwen2.5-VL."""
    yield from _frames(tensors["visual.patch_embed.proj.weight"])
    names = {"v.post_ln": "merger.ln_q", "mm.0": "merger.mlp.0", "mm.2": "merger.mlp.2"}
    parts = {
        "ln1": "norm1", "ln2": "norm2", "attn_q": "attn.q", "attn_k": "attn.k", "attn_v": "attn.v",
        "attn_out": "attn.proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
    }  # fmt: skip
    tensors = dict(tensors)
    for i in range(config["vision_config"]["depth"]):
        for end in ("weight", "bias"):
            joined = tensors[f"visual.blocks.{i}.attn.qkv.{end}"]
            for part, x in zip("qkv", np.split(joined, 3), strict=True):
                tensors[f"visual.blocks.{i}.attn.{part}.{end}"] = x
        names |= {f"v.blk.{i}.{new}": f"blocks.{i}.{old}" for new, old in parts.items()}
    yield from _pairs(tensors, {new: f"visual.{old}" for new, old in names.items()})


def _patches(matrix: np.ndarray, side: int) -> np.ndarray:
    """Rows of a matrix for patches [row, column, colour] as convolutions [colour, row, column]."""
    out = np.empty((len(matrix), 3, side, side), np.float32)
    for i in range(side):
        for j in range(side):
            for colour in range(3):
                out[:, colour, i, j] = matrix[:, (i * side + j) * 3 + colour]
    return out


def lfm2_vl(tensors: Tensors, config: dict[str, Any]) -> Made:
    """LFM2-VL."""
    hf, projector, vision = "model.vision_tower.", "model.multi_modal_projector.", config["vision_config"]
    for name, value in _siglip(tensors, hf, vision["num_hidden_layers"]):
        yield name, _patches(value, vision["patch_size"]) if name == "v.patch_embd.weight" else value
    parts = {"mm.input_norm": "layer_norm", "mm.1": "linear_1", "mm.2": "linear_2"}
    yield from _pairs(tensors, {new: projector + old for new, old in parts.items()})


def lfm3_vl(tensors: Tensors, config: dict[str, Any]) -> Made:
    """LFM3-VL."""
    hf, projector, vision = "model.vision_tower.", "model.multi_modal_projector.", config["vision_config"]
    side = vision["patch_size"]
    yield from _frames(tensors[f"{hf}patchifier.weight"].reshape(-1, 3, 2, side, side))
    names = {"v.norm_embd": f"{hf}embedding_norm"}
    names |= {"mm.input_norm": f"{projector}layer_norm", "mm.1": f"{projector}linear_1", "mm.2": f"{projector}linear_2"}
    parts = {
        "ln1": "operator_norm", "ln2": "ffn_norm", "ffn_gate": "feed_forward.w1", "ffn_up": "feed_forward.w3",
        "ffn_down": "feed_forward.w2", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
        "attn_v": "self_attn.v_proj", "attn_out": "self_attn.out_proj", "attn_q_norm": "self_attn.q_layernorm",
        "attn_k_norm": "self_attn.k_layernorm", "shortconv.in_proj": "conv.in_proj",
        "shortconv.out_proj": "conv.out_proj",
    }  # fmt: skip
    for i, kind in enumerate(vision["layer_types"]):
        names |= {f"v.blk.{i}.{new}": f"{hf}layers.{i}.{old}" for new, old in parts.items()}
        if kind == "conv":
            yield f"v.blk.{i}.shortconv.conv.weight", tensors[f"{hf}layers.{i}.conv.spatial_conv.weight"][:, 0]
    yield from _pairs(tensors, names)


def gemma3(tensors: Tensors, config: dict[str, Any]) -> Made:
    """Gemma 3."""
    yield from _siglip(tensors, "vision_tower.", config["vision_config"]["num_hidden_layers"])
    matrix = tensors["multi_modal_projector.mm_input_projection_weight"]
    yield "mm.input_projection.weight", matrix.astype(np.float16).astype(np.float32)
    yield "mm.soft_emb_norm.weight", tensors["multi_modal_projector.mm_soft_emb_norm.weight"] + np.float32(1)


CLAMPS = ("input_min", "input_max", "output_min", "output_max")


def gemma4(tensors: Tensors, config: dict[str, Any]) -> Made:
    """Gemma 4."""
    hf, vision = "model.vision_tower.", config["vision_config"]
    yield "v.patch_embd.weight", _patches(tensors[f"{hf}patch_embedder.input_proj.weight"], vision["patch_size"])
    yield "v.position_embd.weight", tensors[f"{hf}patch_embedder.position_embedding_table"]
    for part in ("std_bias", "std_scale") if vision["standardize"] else ():
        yield f"v.{part}", tensors[hf + part]
    names = {"mm.input_projection": "model.embed_vision.embedding_projection"}
    parts = {
        "ln1": "input_layernorm", "attn_post_norm": "post_attention_layernorm", "ln2": "pre_feedforward_layernorm",
        "ffn_post_norm": "post_feedforward_layernorm", "attn_q_norm": "self_attn.q_norm",
        "attn_k_norm": "self_attn.k_norm",
    }  # fmt: skip
    products = {
        "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
        "attn_out": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
        "ffn_down": "mlp.down_proj",
    }  # fmt: skip
    for i in range(vision["num_hidden_layers"]):
        layer, blk = f"{hf}encoder.layers.{i}.", f"v.blk.{i}."
        names |= {blk + new: layer + old for new, old in parts.items()}
        names |= {blk + new: f"{layer}{old}.linear" for new, old in products.items()}
        for new, old in products.items():
            for clamp in CLAMPS if vision["use_clipped_linears"] else ():
                yield f"{blk}{new}.{clamp}", tensors[f"{layer}{old}.{clamp}"].reshape(1)
    yield from _pairs(tensors, names)


def granite4_vision(tensors: Tensors, config: dict[str, Any]) -> Made:
    """Granite 4 Vision."""
    yield from _siglip(tensors, "model.vision_tower.", config["vision_config"]["num_hidden_layers"])
    yield "v.image_newline", tensors["model.image_newline"]
    by_layer = {layer: f"layerwise_projectors.{k}." for k, (_, layer) in enumerate(config["deepstack_layer_map"])}
    by_layer |= {layer: f"spatial_projectors.{k}." for k, layer in enumerate(config["spatial_target_layers"])}
    names = {}
    for k, layer in enumerate(sorted(by_layer)):
        hf, blk = f"model.{by_layer[layer]}", f"v.proj_blk.{k}."
        yield f"{blk}query", tensors[f"{hf}query"]
        yield f"{blk}img_pos", tensors[f"{hf}image_positions"]
        names |= {
            f"{blk}norm": f"{hf}norm",
            f"{blk}post_norm": f"{hf}qformer.layernorm",
            f"{blk}linear": f"{hf}out_linear",
        }
        inner = f"{hf}qformer.encoder.layer.0."
        for new, old in (("self", "attention"), ("cross", "crossattention")):
            for letter, part in (("q", "query"), ("k", "key"), ("v", "value")):
                names[f"{blk}{new}_attn_{letter}"] = f"{inner}{old}.attention.{part}"
            names[f"{blk}{new}_attn_out"] = f"{inner}{old}.output.dense"
            names[f"{blk}{new}_attn_norm"] = f"{inner}{old}.output.LayerNorm"
        names[f"{blk}ffn_up"] = f"{inner}intermediate_query.dense"
        names[f"{blk}ffn_down"] = f"{inner}output_query.dense"
        names[f"{blk}ffn_norm"] = f"{inner}output_query.LayerNorm"
    yield from _pairs(tensors, names)


TOWERS: dict[str, Callable[[Tensors, dict[str, Any]], Made]] = {
    "Gemma3ForConditionalGeneration": gemma3,
    "Gemma4ForConditionalGeneration": gemma4,
    "Granite4VisionForConditionalGeneration": granite4_vision,
    "Lfm2VlForConditionalGeneration": lfm2_vl,
    "Lfm3VlForConditionalGeneration": lfm3_vl,
    "Qwen2_5_VLForConditionalGeneration": qwen2_5_vl,
    "Qwen3VLForConditionalGeneration": qwen3_vl,
    "Qwen3_5ForConditionalGeneration": qwen3_vl,
    "SmolVLMForConditionalGeneration": smolvlm,
}
