"""Inkling and Inkling 2 as published: other names, rows of gate and up that alternate, a padded vocabulary."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import random_checkpoints
from random_models import TOKENIZER
from safetensors.numpy import save_file

from hybrid.convert import convert
from hybrid.quant.ggml.reader import GGUFFile

CONFIG = random_checkpoints.complete(
    {**random_checkpoints.CONFIGS["inkling"], "mlp_layer_types": ["dense", "sparse", "sparse"]}
)
NAMES = {
    "q_proj": "wq_du", "k_proj": "wk_dv", "v_proj": "wv_dv", "r_proj": "wr_du", "o_proj": "wo_ud",
    "self_attn": "attn", "sconv.conv1d": "sconv", "input_layernorm": "attn_norm",
    "post_attention_layernorm": "mlp_norm", "e_score_correction_bias": "bias", "mlp.down_proj": "mlp.w2_md",
    "embed_tokens.embed_norm": "embed_norm", "embed_tokens": "embed", "lm_head": "model.unembed",
}  # fmt: skip
Tensors = dict[str, np.ndarray]


def alternating(gate: np.ndarray, up: np.ndarray) -> np.ndarray:
    return np.stack([gate, up], axis=-2).reshape(*gate.shape[:-2], -1, gate.shape[-1])


def published(tensors: Tensors) -> Tensors:
    """The tensors under their published names, in the published layout."""
    made = {}
    for name, x in tensors.items():
        if re.search(r"experts\.|mlp\.(gate|up)_proj", name):
            continue
        for new, old in NAMES.items():
            name = name.replace(new, old)
        made[name] = np.pad(x, ((0, 9), (0, 0))) if "embed.w" in name else x
    for i, kind in enumerate(CONFIG["mlp_layer_types"]):
        p = f"model.layers.{i}.mlp."

        def stack(name: str, first: int = 0, step: int = 1, p: str = p) -> np.ndarray:
            """Parts `first`, `first` + `step`... of a tensor that the converter splits."""
            n = sum(key.rpartition(".")[0] == p + name for key in tensors)
            return np.stack([tensors[f"{p}{name}.{e}"] for e in range(first, n, step)])

        if kind == "dense":
            made[p + "w13_dn.weight"] = alternating(*(tensors[f"{p}{part}_proj.weight"] for part in ("gate", "up")))
            continue
        made[p + "experts.w13_weight"] = alternating(*(stack("experts.gate_up_proj", j, 2) for j in range(2)))
        made[p + "experts.w2_weight"] = stack("experts.down_proj")
        gate, up, down = (stack(f"shared_experts.{part}_proj") for part in ("gate", "up", "down"))
        made[p + "shared_experts.shared_w13_weight"] = alternating(gate, up)
        made[p + "shared_experts.shared_w2_weight"] = down
    return {name.replace("model.", "model.llm.", 1): x for name, x in made.items()}


def settings() -> dict[str, Any]:
    """The published spelling of the config."""
    text = {key: value for key, value in CONFIG.items() if key not in ("layer_types", "mlp_layer_types")}
    text |= {
        "intermediate_size": text.pop("moe_intermediate_size"), "dense_intermediate_size": CONFIG["intermediate_size"],
        "dense_mlp_idx": 1, "local_layer_ids": [0, 2], "unpadded_vocab_size": CONFIG["vocab_size"],
        "vocab_size": CONFIG["vocab_size"] + 9, "sconv_kernel_size": 4, "model_max_length": 512,
    }  # fmt: skip
    del text["architectures"], text["max_position_embeddings"]
    mtp = {"num_nextn_predict_layers": 1}
    return {"architectures": ["InklingForConditionalGeneration"], "text_config": text, "mtp_config": mtp}


def same_files(config: dict[str, Any], other_config: dict[str, Any], tensors: Tensors, tmp_path: Path) -> None:
    """The checkpoint of `config` in transformers' spelling, and another one, make the same file."""
    plain = random_checkpoints.write(config, tmp_path / "plain")
    other = tmp_path / "other"
    other.mkdir()
    (other / "config.json").write_text(json.dumps(other_config))
    save_file(tensors, other / "model.safetensors")
    for folder in (plain, other):
        convert(folder, folder.with_suffix(".gguf"), outtype="f32", tokenizer=TOKENIZER)
    with GGUFFile.open(plain.with_suffix(".gguf")) as a, GGUFFile.open(other.with_suffix(".gguf")) as b:
        assert a.tensors.keys() == b.tensors.keys()
        for name in a.tensors:
            np.testing.assert_array_equal(a.f32(name), b.f32(name), name)
        own = [{k: v for k, v in one.metadata.items() if k.startswith("inkling")} for one in (a, b)]
        np.testing.assert_equal(*own)


def test_the_published_spelling_makes_the_same_file(tmp_path: Path) -> None:
    tensors = published(random_checkpoints.tensors(CONFIG))
    for left_out in ("model.mtp.layers.0.attn.wq_du.weight", "model.audio.encoder.weight"):
        tensors[left_out] = np.ones((2, 2), np.float32)
    same_files(CONFIG, settings(), tensors, tmp_path)


NAMES_2 = {
    "self_attn": "attn", "q_proj.linear": "wq_du", "k_proj.linear": "wk_dv", "v_proj.linear": "wv_dv",
    "o_proj.linear": "wo_ud", "o_proj.gate_proj": "gate_attn", "sink_proj": "attn_sink_proj",
    "k_proj.sconv": "k_sconv", "v_proj.sconv": "v_sconv", "relative_position_bias.linear": "wr_du",
    "q_proj.norm": "q_l2_clip", "relative_position_bias.norm": "rel_l2_clip",
    "relative_position_bias": "rel_logits_proj", "post_attention_convolution": "attn_sconv",
    "post_mlp_convolution": "mlp_sconv", ".conv1d": "", "static_weight": "static_w",
    "weight_proj.weight": "weight_proj", "post_attention_layernorm": "mlp_norm", "q_input_layernorm": "q_input_norm",
    "k_input_layernorm": "k_input_norm", "v_input_layernorm": "v_input_norm", "input_layernorm": "attn_norm",
    "e_score_correction_bias": "bias", "embed_tokens.embed_norm": "embed_norm", "embed_tokens": "embed",
    "lm_head": "model.unembed", "final_input.query": "attn_res.output_query",
}  # fmt: skip


CONTROLLERS = {"q": "attn", "k": "k", "v": "v", "mlp": "mlp"}
GATES = {"down_proj": "down", "forget_gate_proj": "forget", "message_gate_proj": "gain"}


def published_2(tensors: Tensors, config: dict[str, Any]) -> Tensors:
    made: Tensors = {}
    messages = [x for name, x in tensors.items() if name.startswith("model.message_input.query.")]
    if messages:
        parts = np.stack(messages).reshape(-1, 4, messages[0].size)
        made["model.middle_cycle_cross_pass_queries"] = parts[:, [0, 3]].reshape(-1, parts.shape[2])
        made["model.middle_cycle_cross_pass_kv_queries"] = parts[:, 1:3].reshape(-1, parts.shape[2])
    for name, x in tensors.items():
        layer = re.match(r"model\.layers\.(\d+)\.", name)
        i = int(layer[1]) if layer else 0
        if name.endswith(".mlp_input.query"):
            name = f"model.attn_res.mlp_queries.{i}"
        elif ".attention_input.query" in name:
            parts = [tensors[key] for key in tensors if key.startswith(f"model.layers.{i}.attention_input.query.")]
            name, x = f"model.attn_res.attn_queries.{i - 1}", np.stack(parts) if parts else x
        elif ".experts." in name or ".message_input." in name:
            continue
        elif gate := re.search(r"(\w+)_message_gate\.(\w+)\.weight$", name):
            name = f"{name[: gate.start()]}controllers.{CONTROLLERS[gate[1]]}.{GATES[gate[2]]}_weight"
            made[name] = x
            continue
        for new, old in NAMES_2.items():
            name = name.replace(new, old)
        made[name] = np.pad(x, ((0, 9), (0, 0))) if "embed.w" in name else x
    for i in range(config["num_hidden_layers"]):
        p, n = f"model.layers.{i}.mlp.experts.", config["n_routed_experts"]
        halves = (np.stack([tensors[f"{p}gate_up_proj.{2 * e + j}"] for e in range(n)]) for j in range(2))
        made[p + "w13_weight"] = alternating(*halves)
        made[p + "w2_weight"] = np.stack([tensors[f"{p}down_proj.{e}"] for e in range(n)])
    return {name.replace("model.", "model.llm.", 1): x for name, x in made.items()}


@pytest.mark.parametrize("name", ["inkling2", "inkling2-loop"])
def test_the_published_spelling_of_the_second_generation(name: str, tmp_path: Path) -> None:
    config = random_checkpoints.complete(random_checkpoints.CONFIGS[name])
    architecture = config["architectures"][0].replace("ForCausalLM", "ForConditionalGeneration")
    text = {key: value for key, value in config.items() if key != "architectures"}
    text["vocab_size"] += 9
    tensors = published_2(random_checkpoints.tensors(config), config)
    tensors["model.visual.proj_in.weight"] = np.ones((2, 2), np.float32)
    same_files(config, {"architectures": [architecture], "text_config": text}, tensors, tmp_path)
