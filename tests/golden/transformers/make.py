"""Golden results of transformers for models with random weights, whose checkpoints tests/random_checkpoints.py makes.

    pip install torch==2.13.0 transformers==5.24.0      (in an environment with this package)
    python tests/golden/transformers/make.py [NAME...]

writes NAME.npz: `ids` [40], `logits` f32 [40, every 16th of the vocabulary], computed in float64 where transformers
allows it. Without names it writes all that are there again.
"""

import json
import re
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

HERE = Path(__file__).parent
sys.path.append(str(HERE.parents[1]))
from families import merged  # noqa: E402

MODEL_TYPES = merged("model_types")
# Values that MiniMax and Qwen3.8-Flash-Next compute from their configs if a checkpoint lacks them.
CONSTANTS = (
    ".slope_rate",
    ".query_decay",
    ".key_decay",
    ".diagonal_decay",
    ".layer_multipliers",
    ".ngram_heads_vocab_sizes",
    ".ngram_heads_offsets",
)
# The smallest tower of classes that have one: its weights are random and unused.
TOWERS = {
    "Glm5NextForConditionalGeneration": {
        "depth": 1,
        "hidden_size": 32,
        "num_heads": 2,
        "image_size": 28,
        "intermediate_size": 48,
        "out_hidden_size": 32,
        "projection_intermediate_size": 48,
    },
    "MuseGlimmerForConditionalGeneration": {
        "num_hidden_layers": 1,
        "hidden_size": 32,
        "num_attention_heads": 2,
        "intermediate_size": 48,
    },
}
EVERY = 16  # every 16th logit is stored
N_TOK = 40


def in_order(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Tensors, then the pieces of tensors that the converter splits, in the order of their numbers."""

    def number(name: str) -> int:
        last = name.rpartition(".")[2]
        return int(last) if last.isdecimal() else -1

    return {name: tensors[name] for name in sorted(tensors, key=number)}


def checkpoint_names(tensors: dict[str, np.ndarray], config: dict[str, Any]) -> dict[str, np.ndarray]:
    """Tensors with transformers' names and shapes: pieces seen by the converter are joined, and split as in
    transformers."""
    pieces: dict[str, list[np.ndarray]] = {}
    named = {}
    for name, values in tensors.items():
        whole, gate, half = name.partition(".input_linear.weight.gate")
        if gate:  # Granite: gates of every expert, then the gated values
            both = np.concatenate([values, tensors[f"{whole}.input_linear.weight.up{half}"]])
            pieces.setdefault(f"{whole}.input_linear.weight", []).append(both[None] if half else both)
        if ".input_linear.weight." in name:
            continue
        whole, _, last = name.rpartition(".")
        pieces.setdefault(whole if last.isdecimal() else name, []).append(values)
    for name, parts in pieces.items():
        joined = np.concatenate(parts) if len(parts) > 1 else parts[0]
        if name.endswith(".experts.gate_up_proj") and len(parts) > 1:  # two parts for every expert
            joined = joined.reshape(len(parts) // 2, -1, joined.shape[1])
        elif name not in tensors and re.search(r"experts\.(gate|up|down)_proj$|_input\.query$", name):
            joined = np.stack(parts)
            if name.endswith(".message_input.query"):  # four for every layer
                joined = joined.reshape(-1, 4, joined.shape[1])
        if name.endswith("linear_attn.qkv.weight"):
            prefix, n_value = (
                name.removesuffix("qkv.weight"),
                len(tensors[name.replace("linear_attn.qkv", "linear_attn.g_proj")]),
            )
            n_key = (len(joined) - n_value) // 2
            for part, rows in zip("qkv", np.split(joined, [n_key, 2 * n_key]), strict=True):
                named[f"{prefix}{part}_proj.weight"] = rows
        else:
            named[name] = joined
    return named


def idle_gates(tensors: dict[str, np.ndarray], config: dict[str, Any]) -> dict[str, np.ndarray]:
    """Gates that transformers wants, and does not use, of LongCat-Flash's experts that compute nothing."""
    first, n = config.get("n_routed_experts", 0), config.get("zero_expert_num", 0)
    return {
        name.replace(".experts.0.", f".experts.{first + e}."): np.zeros_like(x)
        for name, x in tensors.items()
        if re.search(r"\.experts\.0\.(gate|up)_proj", name)
        for e in range(n)
    }


def with_tower(config: dict[str, Any], kind: str) -> dict[str, Any]:
    """The config of a vision model around its text part's config."""
    return {
        "model_type": kind,
        "architectures": config["architectures"],
        "tie_word_embeddings": config["tie_word_embeddings"],
        "text_config": {**config, "model_type": f"{kind}_text"},
        "vision_config": TOWERS[config["architectures"][0]],
    }


def logits(config: dict[str, Any], tensors: dict[str, np.ndarray], ids: list[int]) -> np.ndarray:
    import torch
    import transformers
    from safetensors.numpy import save_file
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    with TemporaryDirectory() as folder:
        kind, defaults = (
            MODEL_TYPES[config["architectures"][0]],
            {"pad_token_id": 0, "bos_token_id": 0, "eos_token_id": 0},
        )
        named = {name: np.asarray(x, order="C") for name, x in checkpoint_names(in_order(tensors), config).items()}
        named |= idle_gates(named, config)
        full, of_class = {"model_type": kind, **defaults, **config}, transformers.AutoModelForCausalLM
        if kind not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
            of_class = getattr(transformers, config["architectures"][0])
        if config["architectures"][0] in TOWERS:
            full, of_class = with_tower(full, kind), transformers.AutoModelForImageTextToText
            named = {re.sub(r"^model\.", "model.language_model.", name): x for name, x in named.items()}
        Path(folder, "config.json").write_text(json.dumps(full))
        save_file(named, Path(folder, "model.safetensors"), metadata={"format": "pt"})
        model, report = of_class.from_pretrained(
            folder,
            dtype=torch.float64,
            attn_implementation="eager",
            experts_implementation="eager",
            output_loading_info=True,
        )
        report["missing_keys"] = {
            name for name in report["missing_keys"] if not name.endswith(CONSTANTS) and ".vis" not in name
        }
        unloaded = {key: names for key, names in report.items() if names}
        if unloaded:
            raise SystemExit(f"{config['architectures'][0]}: {unloaded}")
        with torch.no_grad():
            return model.eval()(torch.tensor([ids]), use_cache=False).logits[0].numpy()


def main() -> None:
    import random_checkpoints

    for name in sys.argv[1:] or sorted(path.stem for path in HERE.glob("*.npz")):
        config = {"vocab_size": random_checkpoints.N_VOCAB, "max_position_embeddings": 512}
        config |= random_checkpoints.CONFIGS[name]
        ids = np.random.default_rng(4).integers(0, config["vocab_size"], N_TOK).tolist()
        values = logits(config, random_checkpoints.tensors(config), ids)[:, ::EVERY]
        np.savez_compressed(HERE / f"{name}.npz", ids=np.asarray(ids, np.int32), logits=values.astype(np.float32))
        print(f"{name}: {np.abs(values).max():.2f}")


if __name__ == "__main__":
    main()
