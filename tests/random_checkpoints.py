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
ENCODERS: dict[str, dict[str, Any]] = merged("encoders")


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
    for gate in [name for name in by_name if name.endswith(".gate_up_projection.weight")]:
        by_name[gate.replace(".gate_up_projection", "")] -= 1  # norms with gates multiply by 1 + weight
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
        ((".time_maa_" in name or ".time_mix_" in name) and shape[:2] == (1, 1))
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
        ("norm" in name and not name.endswith("_projection.weight"))
        or "subln" in name
        or (last.startswith(("ln", "LayerNorm")) and name.endswith("weight"))
        or name.endswith((".D", "layer_scalar", "router.scale", "per_expert_scale", "global_scale"))
    ):
        large = name.endswith((".lnq.weight", ".lnk.weight"))  # scores that a soft cap changes
        return 6 * large + 1 + noise / 8
    if len(shape) < 2:
        return noise / 4
    return noise / np.float32(np.sqrt(1 if "conv1d" in name and "generator" not in name else shape[-1]))


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
