"""Random checkpoints of models with a head that guesses tokens ahead: the tensors by which the converter recognises a
head, and where the head's own tensors are."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import random_checkpoints
from safetensors.numpy import load_file, save_file

Shapes = dict[str, tuple[int, ...]]
EMBEDDING = "model.embed_tokens.weight"
EMBEDDINGS = EMBEDDING, "backbone.embeddings.weight", "embed.weight"


def _of_mtp(config: dict[str, Any]) -> Shapes:
    n = config["hidden_size"]
    return {"mtp.fc.weight": (n, 2 * n)}


def _numbered(config: dict[str, Any], *own: str) -> Shapes:
    """The tensors of a head in a layer after the model's last. own: tensors that the head has beside the model's."""
    p = f"model.layers.{config['num_hidden_layers']}."
    return dict.fromkeys((p + "eh_proj.weight", *(p + name for name in own)), ())


def _of_two_layers() -> Shapes:
    """A head with an attention layer and an expert layer, as in Nemotron 3."""
    names = "layers.0.eh_proj.weight", "layers.0.mixer.q_proj.weight", "layers.1.mixer.gate.weight"
    return dict.fromkeys((f"mtp.{name}" for name in names), ())


def _of_ernie() -> Shapes:
    return dict.fromkeys(("model.mtp_linear_proj.0.weight", "model.mtp_block.0.mlp.up_proj.weight"), ())


def _of_deepseek4() -> Shapes:
    return dict.fromkeys(("mtp.0.e_proj.weight", "mtp.0.hc_head_fn"), ())


# name -> config, and the tensors that tell of a head
WITH_HEADS: dict[str, tuple[dict[str, Any], Shapes]] = {
    **{
        name + "-mtp": (config := random_checkpoints.CONFIGS[name] | more, _of_mtp(config))
        for name, more in (
            ("qwen3next", {}),
            ("qwen35", {"mtp_num_hidden_layers": 1}),
            ("qwen35moe", {"mtp_num_hidden_layers": 1}),
        )
    },
    "glm4-moe-mtp": (
        config := random_checkpoints.CONFIGS["glm4-moe"],
        _numbered(config, "shared_head.norm.weight", "embed_tokens.weight", "shared_head.head.weight"),
    ),
    "glm4-moe-mtp-shared": (
        config := random_checkpoints.CONFIGS["glm4-moe-plain"],
        _numbered(config, "shared_head.norm.weight"),
    ),
    "hy-v3-mtp": (
        config := random_checkpoints.CONFIGS["hy-v3"] | {"num_nextn_predict_layers": 1},
        _numbered(config, "final_layernorm.weight"),
    ),
    "bailing-hybrid-mtp": (
        config := random_checkpoints.CONFIGS["bailing-hybrid"] | {"num_nextn_predict_layers": 1},
        _numbered(config, "final_layernorm.weight"),
    ),
    **{
        name + "-mtp": (
            config := random_checkpoints.CONFIGS[name] | {"num_nextn_predict_layers": 1},
            _numbered(config, "final_layernorm.weight"),
        )
        for name in ("bailingmoe2", "bailingmoe-linear", "bailingmoe2-5")
    },
    "deepseek-v3-mtp": (
        config := random_checkpoints.CONFIGS["deepseek-v3"] | {"num_nextn_predict_layers": 1},
        _numbered(config, "shared_head.norm.weight", "embed_tokens.weight", "shared_head.head.weight"),
    ),
    "deepseek-v3-yarn-mtp": (
        config := random_checkpoints.CONFIGS["deepseek-v3-yarn"],
        _numbered(config, "shared_head.norm.weight"),
    ),
    "deepseek-v32-mtp": (
        config := random_checkpoints.CONFIGS["deepseek-v32"]
        | {"num_nextn_predict_layers": 1, "first_k_dense_replace": 0, "scoring_func": "sigmoid"},
        _numbered(config, "shared_head.norm.weight", "embed_tokens.weight", "shared_head.head.weight"),
    ),
    "glm-dsa-mtp": (
        config := random_checkpoints.CONFIGS["glm-dsa"]
        | {
            "num_nextn_predict_layers": 1,
            "first_k_dense_replace": 0,
            "scoring_func": "sigmoid",
            "indexer_types": ["full", "full", "full", "shared", "full"],
        },
        _numbered(config, "shared_head.norm.weight"),
    ),
    "nemotron-h-moe-mtp": (
        random_checkpoints.CONFIGS["nemotron-h-moe"]
        | {
            "num_nextn_predict_layers": 1,
            "mtp_hybrid_override_pattern": "*E",
        },
        _of_two_layers(),
    ),
    "glm5-next-streams-mtp": (
        config := random_checkpoints.CONFIGS["glm5-next-streams"],
        _numbered(config, "shared_head.norm.weight"),
    ),
    "glm5-next-plain-mtp": (
        config := random_checkpoints.CONFIGS["glm5-next-plain"] | {"num_nextn_predict_layers": 1},
        _numbered(config, "shared_head.norm.weight", "embed_tokens.weight", "shared_head.head.weight"),
    ),
    "gigachat35-mtp": (
        config := random_checkpoints.CONFIGS["gigachat35"] | {"num_nextn_predict_layers": 1},
        _numbered(config, "shared_head.norm.weight", "shared_head.head.weight"),
    ),
    "gigachat35-yarn-mtp": (
        config := random_checkpoints.CONFIGS["gigachat35-yarn"] | {"nextn_is_sparse": True},
        _numbered(config),
    ),
    "deepseek4-mtp": (random_checkpoints.CONFIGS["deepseek4"], _of_deepseek4()),
    "deepseek4-yarn-mtp": (random_checkpoints.CONFIGS["deepseek4-yarn"], _of_deepseek4()),
    "qwen4exp-mtp": (random_checkpoints.CONFIGS["qwen4exp"], {"mtp.fc_embedding.weight": ()}),
    "qwen4exp-plain-mtp": (random_checkpoints.CONFIGS["qwen4exp-plain"], {"mtp.fc_embedding.weight": ()}),
    "ernie4_5-moe-mtp": (random_checkpoints.CONFIGS["ernie4_5-moe"] | {"num_nextn_predict_layers": 1}, _of_ernie()),
    "ernie4_5-moe-order-mtp": (random_checkpoints.CONFIGS["ernie4_5-moe-order"], _of_ernie()),
    "nemotron-h-moe-groups-mtp": (random_checkpoints.CONFIGS["nemotron-h-moe-groups"], _of_two_layers()),
}


def write(name: str, folder: Path) -> Path:
    """Write config.json and model.safetensors, without a tokenizer."""
    config, shapes = WITH_HEADS[name]
    return random_checkpoints.write(config, folder, shapes)


def write_right(name: str, folder: Path) -> Path:
    """Write a model in which each token has a fixed successor, and whose head knows it. Layers add 0, the output row of
    a token is the embedding of its predecessor, and the head passes on the embedding that it gets."""
    config, shapes = WITH_HEADS[name]
    random_checkpoints.write(config, folder, shapes)
    tensors = load_file(folder / "model.safetensors")
    n = config["hidden_size"]
    nothing = "o_proj", "out_proj", "down_proj", "wo_b", "w2", "input_mix_weight_up"
    for part, values in tensors.items():
        if part.rpartition(".")[0].endswith(nothing):
            values[:] = 0
        elif "norm" in part or "q_proj" in part:
            values[:] = 0 if "mtp" in name and "qwen" in name else 1
    embedding = tensors[next(part for part in EMBEDDINGS if part in tensors)]
    embedding /= np.linalg.norm(embedding, axis=1, keepdims=True)
    output = "head.weight" if "head.weight" in tensors else "lm_head.weight"
    tensors[output] = embedding[np.random.default_rng(7).permutation(len(embedding))]
    joins = "mtp.fc.weight", "eh_proj.weight", "mtp_linear_proj.0.weight"
    of_tokens, of_states = (".e_proj.weight", ".fc_embedding.weight"), (".h_proj.weight", ".fc_hidden.weight")
    for part in list(tensors):
        if part.endswith(joins):
            tensors[part] = np.concatenate([np.eye(n), np.zeros((n, n))], axis=1).astype(np.float32)
        elif part.endswith((*of_tokens, *of_states)):
            tensors[part] = (np.eye(n) if part.endswith(of_tokens) else np.zeros((n, n))).astype(np.float32)
    for part in list(tensors):
        own = f"layers.{config.get('num_hidden_layers')}.embed_tokens.weight"
        if "shared_head.head" in part or part.endswith(own):
            tensors[part] = tensors["lm_head.weight" if "head.head" in part else EMBEDDING]
    (folder / "config.json").write_text(
        json.dumps({**json.loads((folder / "config.json").read_text()), "tie_word_embeddings": False})
    )
    save_file(tensors, folder / "model.safetensors")
    return folder
