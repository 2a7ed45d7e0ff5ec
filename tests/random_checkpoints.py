"""Checkpoints with random weights, made from a config alone: the families declare which tensors they need.

All dimensions have different odd sizes. Values are such that every layer matters and nothing saturates.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
from families import listed, merged
from family_rows import N_VOCAB
from safetensors.numpy import load_file, save_file

from hybrid.convert.architectures import Family
from hybrid.convert.architectures.family import Shapes
from hybrid.convert.checkpoint import Config
from hybrid.convert.plan import family_of

CONFIGS: dict[str, dict[str, Any]] = merged("configs")
# Models that differ from another one only in settings of known layers: tests of layers need only one of each family.
REPEATED = listed("repeated")

# Models that only make embeddings. They use the tokenizer of tests/data/tokenizers/wordpiece.
ENCODERS: dict[str, dict[str, Any]] = {
    "bert": {
        "architectures": ["BertModel"], "vocab_size": 2000, "hidden_size": 60, "intermediate_size": 104,
        "num_hidden_layers": 3, "num_attention_heads": 5, "max_position_embeddings": 160, "type_vocab_size": 2,
        "layer_norm_eps": 1e-12, "hidden_act": "gelu",
    },
    "roberta": {
        "architectures": ["XLMRobertaModel"], "vocab_size": 2000, "hidden_size": 48, "intermediate_size": 80,
        "num_hidden_layers": 2, "num_attention_heads": 3, "max_position_embeddings": 202, "type_vocab_size": 1,
        "layer_norm_eps": 1e-5, "hidden_act": "gelu", "pad_token_id": 1,
    },
    "bert-scores": {
        "architectures": ["BertForSequenceClassification"], "vocab_size": 2000, "hidden_size": 56,
        "intermediate_size": 88, "num_hidden_layers": 2, "num_attention_heads": 7, "max_position_embeddings": 190,
        "type_vocab_size": 2, "layer_norm_eps": 1e-12, "hidden_act": "gelu",
        "id2label": {"0": "far", "1": "near", "2": "same"},
    },
    "roberta-scores": {
        "architectures": ["XLMRobertaForSequenceClassification"], "vocab_size": 2000, "hidden_size": 40,
        "intermediate_size": 72, "num_hidden_layers": 2, "num_attention_heads": 5, "max_position_embeddings": 190,
        "type_vocab_size": 1, "layer_norm_eps": 1e-5, "hidden_act": "gelu", "pad_token_id": 1,
        "id2label": {"0": "LABEL_0"},
    },
    "modern-bert": {
        "architectures": ["ModernBertModel"], "vocab_size": 2000, "hidden_size": 60, "intermediate_size": 88,
        "num_hidden_layers": 5, "num_attention_heads": 3, "max_position_embeddings": 700, "local_attention": 22,
        "global_attn_every_n_layers": 2, "global_rope_theta": 80000.0, "local_rope_theta": 5000.0, "norm_eps": 1e-4,
        "hidden_activation": "silu", "classifier_pooling": "mean", "pad_token_id": 0,
    },
    "modern-bert-scores": {
        "architectures": ["ModernBertForSequenceClassification"], "vocab_size": 2000, "hidden_size": 48,
        "intermediate_size": 72, "num_hidden_layers": 4, "num_attention_heads": 4, "max_position_embeddings": 256,
        "local_attention": 12, "norm_eps": 1e-5, "hidden_activation": "gelu", "classifier_pooling": "mean",
        "id2label": {"0": "no", "1": "yes"}, "pad_token_id": 0,
    },
    "modern-bert-first": {
        "architectures": ["ModernBertForSequenceClassification"], "vocab_size": 2000, "hidden_size": 40,
        "intermediate_size": 56, "num_hidden_layers": 2, "num_attention_heads": 5, "max_position_embeddings": 256,
        "layer_types": ["full_attention", "sliding_attention"], "local_attention": 9, "num_labels": 1,
        "rope_parameters": {
            "full_attention": {"rope_theta": 40000.0, "rope_type": "default"},
            "sliding_attention": {"rope_theta": 9000.0, "rope_type": "default"},
        },
        "pad_token_id": 0,
    },
    "embedding-gemma": {
        "architectures": ["Gemma3TextModel"], "vocab_size": 2000, "hidden_size": 60, "intermediate_size": 72,
        "num_hidden_layers": 3, "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 26,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        "max_position_embeddings": 400, "sliding_window": 15, "query_pre_attn_scalar": 26, "rms_norm_eps": 1e-5,
        "rope_theta": 5e5, "rope_local_base_freq": 8e3, "use_bidirectional_attention": True, "pad_token_id": 0,
    },
    "lfm2-bidirectional": {
        "architectures": ["Lfm2BidirectionalModel"], "vocab_size": 2000, "hidden_size": 60, "intermediate_size": 130,
        "num_hidden_layers": 4, "num_attention_heads": 6, "num_key_value_heads": 2, "max_position_embeddings": 300,
        "layer_types": ["conv", "full_attention", "conv", "full_attention"], "conv_L_cache": 3, "norm_eps": 1e-5,
        "rope_theta": 30000.0, "block_multiple_of": 8, "pad_token_id": 0,
    },
    "bert-even": {
        "architectures": ["BertModel"], "vocab_size": 2000, "hidden_size": 64, "intermediate_size": 96,
        "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 600, "type_vocab_size": 1,
        "layer_norm_eps": 1e-6, "hidden_act": "gelu",
    },
}  # fmt: skip


def family_for(config: dict[str, Any], shapes: Shapes | None = None) -> Family:
    """The family of a config. shapes: of some tensors of the checkpoint. A larger tensor is added to them, because
    families compare sizes with the largest."""
    wrapped = Config(config, "config.json")
    some = {**shapes, "the largest": (1 << 20, 1)} if shapes else {}
    return family_of(wrapped)[0].read(wrapped, some)


def tensors(config: dict[str, Any], seed: int = 1, shapes: Shapes | None = None) -> dict[str, np.ndarray]:
    """The f32 tensors, by their names in Hugging Face checkpoints; tensors that the converter splits are present as
    parts. shapes: of tensors that the family looks for before it declares its own."""
    rng = np.random.default_rng(seed)
    by_name: dict[str, np.ndarray] = {}
    family = family_for(config, shapes)
    for row in family.rows():
        without = family.tied and (row.tied_to or row.otherwise)
        for i, name in enumerate(() if without else row.sources):
            shape = row.expected_of(i)
            by_name.setdefault(name, _choices(shape, family, rng) if row.integers else _values(name, shape, rng))
    by_name |= {name: _values(name, shape, rng) for name, shape in family.in_keys().items()}
    return by_name


def _choices(shape: tuple[int, ...], family: Any, rng: np.random.Generator) -> np.ndarray:
    """i64: different experts for each token of the vocabulary."""
    return np.argsort(rng.random((shape[0], family.n_expert)), axis=1)[:, : shape[1]].astype(np.int64)


def _values(name: str, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    noise = rng.standard_normal(shape).astype(np.float32)
    if name.endswith("recurrent_param"):
        return noise / 2 - 4
    if name.endswith("A_log"):
        return np.log(rng.uniform(0.5, 8, shape)).astype(np.float32)
    if name.endswith("dt_bias"):
        return noise - 2
    if ("embed" in name or name in ("wte.weight", "wpe.weight")) and len(shape) == 2:
        return noise / 8
    if name.endswith("time_decay"):
        return noise / 2 - 2
    if (
        (".time_maa_" in name and shape[:2] == (1, 1))
        or (".attn.x_" in name and "x_proj" not in name)
        or name.endswith("ffn.x_k")
    ):
        return 0.5 + noise / 4
    if name.endswith(("_states_scale", ".residual_scale", "hc_attn_scale", "hc_ffn_scale", ".correct_output_scale")):
        return 1 + noise / 8
    if name.endswith("balancing_biases"):  # the choice "no expert" has -1, so all choices are about equally good
        return noise / 8 - 1
    if name.endswith(("act_fn.beta", "act_fn.eps")):
        return np.asarray(0.5 + noise / 8 if name.endswith("beta") else -np.abs(noise) / 4)
    last = name.rpartition(".")[0].rpartition(".")[2]
    if (
        "norm" in name
        or "subln" in name
        or (last.startswith(("ln", "LayerNorm")) and name.endswith("weight"))
        or name.endswith((".D", "layer_scalar", "router.scale", "per_expert_scale"))
    ):
        return 1 + noise / 8
    if len(shape) < 2:
        return noise / 4
    return noise / np.float32(np.sqrt(shape[-1] if "conv1d" not in name else 1))


def complete(config: dict[str, Any]) -> dict[str, Any]:
    """The config with the fields that all configs have."""
    return {"vocab_size": N_VOCAB, "max_position_embeddings": 512, **config}


def write(config: dict[str, Any], folder: Path, shapes: Shapes | None = None) -> Path:
    """Write config.json and model.safetensors, without a tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    full = complete(config)
    (folder / "config.json").write_text(json.dumps(full))
    save_file(tensors(full, shapes=shapes), folder / "model.safetensors")
    return folder


def pad_positions(folder: Path) -> None:
    """Put the rows that belong to no token before the positions of a RoBERTa."""
    config, name = json.loads((folder / "config.json").read_text()), "embeddings.position_embeddings.weight"
    if "Roberta" in config["architectures"][0]:
        tensors = load_file(folder / "model.safetensors")
        unused = np.full((config["pad_token_id"] + 1, tensors[name].shape[1]), 1e6, np.float32)
        save_file({**tensors, name: np.concatenate([unused, tensors[name]])}, folder / "model.safetensors")
