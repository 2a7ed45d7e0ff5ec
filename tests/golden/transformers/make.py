"""Golden results of transformers for models with random weights, whose checkpoints tests/random_checkpoints.py makes.

    pip install torch==2.13.0 transformers==5.24.0      (in an environment with this package)
    python tests/golden/transformers/make.py [NAME...]

writes NAME.npz: `ids` [40], `logits` f32 [40, every 16th of the vocabulary], computed in float64 where transformers
allows it.
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
from families import FAMILY_ROWS, merged  # noqa: E402
from random_compressed import COMPRESSED  # noqa: E402
from random_experts import EXPERT_CONFIGS  # noqa: E402
from random_latent import LATENT  # noqa: E402
from random_plain import PLAIN  # noqa: E402
from random_pooled import POOLED  # noqa: E402
from random_ssm import SSM_CONFIGS  # noqa: E402
from random_windows import STRETCHED, WINDOWS  # noqa: E402

NAMES = (
    *PLAIN, "qwen3moe", "lfm2moe", *EXPERT_CONFIGS,
    "lfm3", "lfm3-biased",
    "gemma4", "gemma4-order", "gemma4-window",
    "gemma3n", "gemma3n-order",
    "zamba", "zamba2", "zamba2-2.7b", "olmo-hybrid", "olmo-hybrid-turned", "mistral", "olmo2", "olmoe", "smollm3",
    "starcoder2", "phi2", "gpt2", "xlstm", "kimi-linear", "zaya", "zaya-window",
    "minimax-scaled", "minimax-window", *SSM_CONFIGS, *WINDOWS, *STRETCHED,
    "bailing-hybrid", *LATENT, *POOLED, *COMPRESSED,
    "gptneox", "gptneox-serial", "falcon", "falcon-normed",
    "qwen4exp", "qwen4exp-plain",
    *(name for rows in FAMILY_ROWS if rows.model_types for name in rows.configs),
)  # fmt: skip
MODEL_TYPES = {
    "Olmo3": "olmo3", "Qwen2Moe": "qwen2_moe", "Glm4": "glm4", "SeedOss": "seed_oss", "Exaone4": "exaone4",
    "Ernie4_5": "ernie4_5", "Ernie4_5_Moe": "ernie4_5_moe", "Cohere2": "cohere2", "StableLm": "stablelm",
    "Dots1": "dots1", "Glm4Moe": "glm4_moe", "HunYuanDenseV1": "hunyuan_v1_dense",
    "HunYuanMoEV1": "hunyuan_v1_moe", "Apertus": "apertus", "PhiMoE": "phimoe",
    "Arcee": "arcee", "Cohere": "cohere", "Nemotron": "nemotron", "Mixtral": "mixtral", "Gemma": "gemma",
    "NemotronH": "nemotron_h", "Qwen3Moe": "qwen3_moe", "Qwen3Next": "qwen3_next", "Lfm2Moe": "lfm2_moe",
    "Zamba": "zamba", "Zamba2": "zamba2", "OlmoHybrid": "olmo_hybrid", "xLSTM": "xlstm", "Mistral": "mistral",
    "Olmo2": "olmo2", "Olmoe": "olmoe", "Starcoder2": "starcoder2", "Phi": "phi", "GPT2": "gpt2",
    "Mamba": "mamba", "FalconMamba": "falcon_mamba", "Mamba2": "mamba2", "Jamba": "jamba", "FalconH1": "falcon_h1",
    "Bamba": "bamba", "GraniteMoeHybrid": "granitemoehybrid",
    "Lfm3": "lfm3", "Gemma4": "gemma4_text",
    "Phi3": "phi3", "Qwen2": "qwen2", "Qwen3": "qwen3", "Llama": "llama", "Gemma2": "gemma2",
    "Gemma3": "gemma3_text", "SmolLM3": "smollm3", "KimiLinear": "kimi_linear", "Zaya": "zaya",
    "MiniMax": "minimax",
    "BailingHybrid": "bailing_hybrid",
    "DeepseekV2": "deepseek_v2", "DeepseekV3": "deepseek_v3", "DeepseekV4": "deepseek_v4",
    "GPTNeoX": "gpt_neox", "Falcon": "falcon",
    "Glm5Next": "glm5_next",
    "Llama4": "llama4_text", "Gemma3n": "gemma3n_text",
    "GptOss": "gpt_oss", "Ministral3": "ministral3",
    "Qwen4Exp": "qwen4_exp_text",
}  # fmt: skip
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


def model_type(name: str) -> str:
    """transformers' model_type of a class."""
    short = name
    for suffix in ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration"):
        short = short.removesuffix(suffix)
    return merged("model_types").get(name) or MODEL_TYPES[short]


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

    with TemporaryDirectory() as folder:
        kind, defaults = (
            model_type(config["architectures"][0]),
            {"pad_token_id": 0, "bos_token_id": 0, "eos_token_id": 0},
        )
        named = {name: np.asarray(x, order="C") for name, x in checkpoint_names(in_order(tensors), config).items()}
        named |= idle_gates(named, config)
        full, of_class = {"model_type": kind, **defaults, **config}, transformers.AutoModelForCausalLM
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
            name for name in report["missing_keys"] if not name.endswith(CONSTANTS) and ".visual." not in name
        }
        unloaded = {key: names for key, names in report.items() if names}
        if unloaded:
            raise SystemExit(f"{config['architectures'][0]}: {unloaded}")
        with torch.no_grad():
            return model.eval()(torch.tensor([ids]), use_cache=False).logits[0].numpy()


def main() -> None:
    import random_checkpoints

    for name in sys.argv[1:] or NAMES:
        config = {"vocab_size": random_checkpoints.N_VOCAB, "max_position_embeddings": 512}
        config |= random_checkpoints.CONFIGS[name]
        ids = np.random.default_rng(4).integers(0, config["vocab_size"], N_TOK).tolist()
        values = logits(config, random_checkpoints.tensors(config), ids)[:, ::EVERY]
        np.savez_compressed(HERE / f"{name}.npz", ids=np.asarray(ids, np.int32), logits=values.astype(np.float32))
        print(f"{name}: {np.abs(values).max():.2f}")


if __name__ == "__main__":
    main()
