"""A small config for every architecture: from tests/random_checkpoints.py, or from here.

`fields` tells which config fields of an architecture are used, refused or without effect.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import config_fields
from families import merged
from random_checkpoints import CONFIGS, ENCODERS

from hybrid.convert.architectures import ARCHITECTURES
from hybrid.convert.checkpoint import Config
from hybrid.convert.config_fields import (
    REFUSED,
    WITHOUT_EFFECT,
    condition,
    refuse_what_none_can,
    without_effect,
)

_ATTENTION = {"num_attention_heads": 3, "num_key_value_heads": 1}
_SSM = {"mamba_n_heads": 4, "mamba_d_head": 12, "mamba_n_groups": 2, "mamba_d_state": 6, "mamba_d_conv": 3}
_DELTA = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 6,
    "linear_value_head_dim": 10,
    "linear_conv_kernel_dim": 3,
    "rms_norm_eps": 1e-6,
    "head_dim": 16,
}

MORE: dict[str, dict[str, Any]] = {
    "bamba": {
        "architectures": ["BambaForCausalLM"], "hidden_size": 24, "intermediate_size": 20, "num_hidden_layers": 2,
        **_ATTENTION, **_SSM, "attn_layer_indices": [1], "rms_norm_eps": 1e-5,
    },
    "falcon-h1-expanded": {
        "architectures": ["FalconH1ForCausalLM"], "hidden_size": 24, "intermediate_size": 20, "num_hidden_layers": 2,
        **_ATTENTION, **_SSM, "mamba_d_ssm": None, "mamba_expand": 2, "head_dim": 8, "rms_norm_eps": 1e-5,
    },
    "falcon-mamba": {
        "architectures": ["FalconMambaForCausalLM"], "model_type": "falcon_mamba", "hidden_size": 12, "state_size": 5,
        "num_hidden_layers": 2, "intermediate_size": 20, "conv_kernel": 3, "time_step_rank": 3, "mixer_rms_eps": 1e-5,
    },
    "gemma3-pictures": {
        "architectures": ["Gemma3ForConditionalGeneration"], "vision_config": {"hidden_size": 7},
        "text_config": {
            "vocab_size": 40, "hidden_size": 18, "intermediate_size": 20, "num_hidden_layers": 7, **_ATTENTION,
            "head_dim": 8, "sliding_window": 5, "query_pre_attn_scalar": 7, "max_position_embeddings": 64,
        },
    },
    "gemma3n-pictures": {
        "architectures": ["Gemma3nForConditionalGeneration"], "vision_config": {"hidden_size": 7},
        "text_config": {
            "vocab_size": 40, "hidden_size": 18, "intermediate_size": [20, 24, 20], "num_hidden_layers": 3,
            **_ATTENTION, "head_dim": 8, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
            "sliding_window": 5, "max_position_embeddings": 64, "hidden_size_per_layer_input": 6,
            "vocab_size_per_layer_input": 36, "num_kv_shared_layers": 1, "laurel_rank": 5,
            "activation_sparsity_pattern": [0.95, 0.0, 0.3], "rope_theta": 1e5, "rope_local_base_freq": 2e4,
        },
    },
    "gemma4-pictures": {
        "architectures": ["Gemma4ForConditionalGeneration"], "vision_config": {"hidden_size": 7},
        "text_config": {
            "vocab_size": 40, "hidden_size": 18, "intermediate_size": 20, "num_hidden_layers": 4, **_ATTENTION,
            "head_dim": 8, "layer_types": ["sliding_attention", "full_attention"] * 2, "sliding_window": 5,
            "max_position_embeddings": 64, "hidden_size_per_layer_input": 6, "vocab_size_per_layer_input": 40,
            "num_kv_shared_layers": 1, "use_double_wide_mlp": True, "final_logit_softcapping": 3.0,
            "enable_moe_block": True, "num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 10,
            "per_layer_config": {i: {"head_dim": 12} for i in ("1", "3")}, "attention_k_eq_v": True,
        },
    },
    "glm5-next-published": {
        "architectures": ["Glm5NextForConditionalGeneration"], "vision_config": {"hidden_size": 7},
        "text_config": {
            "vocab_size": 40, "hidden_size": 18, "intermediate_size": 20, "num_hidden_layers": 5,
            "num_attention_heads": 3, "num_key_value_heads": 3, "max_position_embeddings": 64, "q_lora_rank": 7,
            "kv_lora_rank": 9, "qk_nope_head_dim": 5, "qk_rope_head_dim": 0, "v_head_dim": 4, "index_n_heads": 2,
            "index_head_dim": 6, "index_kpool": 2, "index_topk": 6, "index_topk_freq": 2, "index_skip_topk_offset": 2,
            "layer_types": ["linear_attention"] * 3 + ["full_attention"] * 2, "first_k_dense_replace": 2,
            "linear_attn_config": {"head_dim": 6, "num_heads": 3, "short_conv_kernel_size": 3,
                                   "gate_lower_bound": -4.0, "safe_gate": True},
            "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 10, "mhc": True,
            "mla_use_nope": True, "scoring_func": "sigmoid",
        },
    },
    "granite-hybrid": {
        "architectures": ["GraniteMoeHybridForCausalLM"], "hidden_size": 24, "intermediate_size": 14,
        "num_hidden_layers": 2, **_ATTENTION, **_SSM, "layer_types": ["mamba", "attention"], "num_local_experts": 3,
        "num_experts_per_tok": 2, "shared_intermediate_size": 10, "rms_norm_eps": 1e-5,
    },
    "granite-shared": {
        "architectures": ["GraniteMoeSharedForCausalLM"], "hidden_size": 24, "intermediate_size": 14,
        "num_hidden_layers": 2, **_ATTENTION, "num_local_experts": 3, "num_experts_per_tok": 2,
        "shared_intermediate_size": 10,
    },
    "jamba": {
        "architectures": ["JambaForCausalLM"], "hidden_size": 12, "intermediate_size": 20, "num_hidden_layers": 4,
        **_ATTENTION, "num_experts": 3, "num_experts_per_tok": 2, "expert_layer_period": 2, "expert_layer_offset": 1,
        "attn_layer_period": 3, "attn_layer_offset": 2, "mamba_d_state": 5, "mamba_d_conv": 3, "mamba_expand": 2,
        "mamba_dt_rank": 3,
    },
    "kimi-k3-pictures": {
        "architectures": ["KimiK3ForConditionalGeneration"], "vision_config": {"hidden_size": 7},
        "text_config": {
            "vocab_size": 40, "hidden_size": 24, "intermediate_size": 20, "num_hidden_layers": 3, "hidden_act": "situ",
            "num_attention_heads": 3, "num_key_value_heads": 3, "kv_lora_rank": 9, "qk_nope_head_dim": 6,
            "qk_rope_head_dim": 4, "v_head_dim": 5, "mla_use_nope": True, "num_experts": 4, "num_experts_per_token": 2,
            "moe_intermediate_size": 10, "attn_res_block_size": 2, "max_position_embeddings": 64, "q_lora_rank": 7,
            "routed_expert_hidden_size": 8, "rms_norm_eps": 1e-5, "latent_moe_use_norm": True,
            "mla_use_output_gate": True,
            "linear_attn_config": {
                "full_attn_layers": [2], "kda_layers": [1, 3], "head_dim": 6, "num_heads": 3,
                "short_conv_kernel_size": 3, "use_full_rank_gate": True, "gate_lower_bound": -5.0,
            },
        },
    },
    "lfm2-published": {
        "architectures": ["Lfm2ForCausalLM"], "hidden_size": 24, "block_ff_dim": 30, "num_hidden_layers": 3,
        "full_attn_idxs": [1], "block_multiple_of": 4, **_ATTENTION, "conv_L_cache": 3, "norm_eps": 1e-5,
        "tie_embedding": True,
    },
    "mamba": {
        "architectures": ["MambaForCausalLM"], "hidden_size": 12, "state_size": 5, "num_hidden_layers": 2,
        "expand": 3, "conv_kernel": 3, "time_step_rank": 3, "layer_norm_epsilon": 1e-6,
    },
    "mamba2": {
        "architectures": ["Mamba2ForCausalLM"], "hidden_size": 12, "state_size": 5, "num_hidden_layers": 2,
        "expand": 2, "conv_kernel": 3, "num_heads": 4, "head_dim": 6, "n_groups": 2, "tie_word_embeddings": False,
    },
    "llama4-pictures": {
        "architectures": ["Llama4ForConditionalGeneration"], "vision_config": {"hidden_size": 7},
        "text_config": {
            "vocab_size": 40, "hidden_size": 18, "intermediate_size": 10, "intermediate_size_mlp": 20,
            "num_hidden_layers": 5, **_ATTENTION, "head_dim": 8, "num_local_experts": 3, "interleave_moe_layer_step": 2,
            "attention_chunk_size": 7, "floor_scale": 9, "max_position_embeddings": 64, "rope_theta": 5e5,
        },
    },
    "mistral3-pictures": {
        "architectures": ["Mistral3ForConditionalGeneration"], "vision_config": {"hidden_size": 7},
        "tie_word_embeddings": False,
        "text_config": {
            "model_type": "ministral3", "vocab_size": 40, "hidden_size": 18, "intermediate_size": 20,
            "num_hidden_layers": 2, **_ATTENTION, "head_dim": 8, "rms_norm_eps": 1e-5, "max_position_embeddings": 64,
            "rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "mscale": 1.0,
                                "mscale_all_dim": 1.0, "original_max_position_embeddings": 16,
                                "llama_4_scaling_beta": 0.1},
        },
    },
    "nemotron-h-experts": {
        "architectures": ["NemotronHForCausalLM"], "hidden_size": 24, "intermediate_size": 20,
        "layers_block_type": ["mamba", "moe", "attention"], **_ATTENTION, "head_dim": 8, "mamba_num_heads": 4,
        "mamba_head_dim": 6, "ssm_state_size": 5, "n_groups": 2, "conv_kernel": 3, "n_routed_experts": 3,
        "num_experts_per_tok": 2, "moe_intermediate_size": 10, "moe_shared_expert_intermediate_size": 14,
    },
    "qwen3-window-behind": {
        "architectures": ["Qwen3ForCausalLM"], "hidden_size": 24, "intermediate_size": 20, "num_hidden_layers": 3,
        **_ATTENTION, "head_dim": 8, "use_sliding_window": True, "sliding_window": 7, "max_window_layers": 1,
    },
    "smolvlm": {
        "architectures": ["SmolVLMForConditionalGeneration"], "vision_config": {"hidden_size": 7}, "scale_factor": 3,
        "text_config": {
            "vocab_size": 40, "hidden_size": 18, "intermediate_size": 20, "num_hidden_layers": 2, **_ATTENTION,
            "max_position_embeddings": 64,
        },
    },
    "qwen25-vl": {
        "architectures": ["Qwen2_5_VLForConditionalGeneration"], "vision_config": {"depth": 7},
        "text_config": {
            "vocab_size": 40, "hidden_size": 18, "intermediate_size": 20, "num_hidden_layers": 2, **_ATTENTION,
            "max_position_embeddings": 64, "rope_parameters": {"type": "mrope", "mrope_section": [1, 1, 1]},
        },
    },
    "qwen25-vl-window": {
        "architectures": ["Qwen2_5_VLForConditionalGeneration"], "vision_config": {"depth": 7},
        "text_config": {
            "vocab_size": 40, "hidden_size": 18, "intermediate_size": 20, "num_hidden_layers": 3, **_ATTENTION,
            "max_position_embeddings": 64, "use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1,
        },
    },
    "qwen3-vl": {
        "architectures": ["Qwen3VLForConditionalGeneration"],
        "vision_config": {"depth": 7, "deepstack_visual_indexes": [1, 2]},
        "text_config": {
            "vocab_size": 40, "hidden_size": 18, "intermediate_size": 20, "num_hidden_layers": 2, **_ATTENTION,
            "head_dim": 8, "max_position_embeddings": 64, "rope_parameters": {"mrope_section": [2, 1, 1]},
        },
    },
    "lfm2-vl": {
        "architectures": ["Lfm2VlForConditionalGeneration"], "vision_config": {"hidden_size": 7},
        "text_config": {
            "vocab_size": 40, "hidden_size": 18, "intermediate_size": 20, "num_hidden_layers": 3, **_ATTENTION,
            "layer_types": ["conv", "full_attention", "conv"], "max_position_embeddings": 64, "conv_L_cache": 3,
            "block_multiple_of": 8, "block_ffn_dim_multiplier": 1.5, "norm_eps": 1e-5,
        },
    },
    "lfm2-vl-indices": {
        "architectures": ["Lfm2VlForConditionalGeneration"], "vision_config": {"hidden_size": 7},
        "text_config": {
            "vocab_size": 40, "hidden_size": 18, "intermediate_size": 20, "num_hidden_layers": 3, **_ATTENTION,
            "full_attn_idxs": [1], "max_position_embeddings": 64, "block_multiple_of": 8,
        },
    },
    "lfm3-vl": {
        "architectures": ["Lfm3VlForConditionalGeneration"], "vision_config": {"hidden_size": 7},
        "text_config": {
            "vocab_size": 40, "hidden_size": 18, "intermediate_size": 20, "num_hidden_layers": 3, **_ATTENTION,
            "layer_types": ["conv", "full_attention", "sliding_attention"], "head_dim": 8, "sliding_window": 5,
            "max_position_embeddings": 64, "rope_parameters": {"full_attention": {}, "sliding_attention": {}},
        },
    },
    "granite4-vision": {
        "architectures": ["Granite4VisionForConditionalGeneration"],
        "vision_config": {"num_hidden_layers": 3}, "deepstack_layer_map": [[2, 3], [-1, 0]],
        "spatial_target_layers": [4, 2], "spatial_vision_layer": -3,
        "text_config": {
            "vocab_size": 40, "hidden_size": 18, "intermediate_size": 20, "num_hidden_layers": 5, **_ATTENTION,
            "max_position_embeddings": 64,
        },
    },
    "qwen35-pictures": {
        "architectures": ["Qwen3_5ForConditionalGeneration"], "vision_config": {"depth": 7},
        "text_config": {
            "vocab_size": 40, "hidden_size": 24, "intermediate_size": 20, "num_hidden_layers": 4, **_ATTENTION,
            **_DELTA, "max_position_embeddings": 64, "rope_parameters": {"mrope_section": [2, 1, 1]},
        },
    },
    "qwen35moe-pictures": {
        "architectures": ["Qwen3_5MoeForConditionalGeneration"], "vision_config": {"depth": 7},
        "text_config": {
            "vocab_size": 40, "hidden_size": 24, "num_hidden_layers": 4, **_ATTENTION, **_DELTA, "num_experts": 3,
            "num_experts_per_tok": 2, "moe_intermediate_size": 10, "shared_expert_intermediate_size": 14,
            "max_position_embeddings": 64,
        },
    },
    "qwen4exp-pictures": {
        "architectures": ["Qwen4ExpForConditionalGeneration"], "vision_config": {"depth": 7}, "image_token_id": 31,
        "text_config": {
            "vocab_size": 40, "hidden_size": 24, "num_hidden_layers": 4, **_ATTENTION, **_DELTA,
            "num_experts": 3, "num_experts_per_tok": 2, "moe_intermediate_size": 10,
            "shared_expert_intermediate_size": 14, "max_position_embeddings": 64, "hc_count": 2, "hc_lowrank": 5,
            "indexer_n_heads": 3, "indexer_kv_heads": 1, "indexer_head_dim": 10, "indexer_budget": 12,
            "indexer_compress_ratio": 4, "ple_layer_ids": [2], "ple_conv_kernel_size": 2, "heads_per_ngram": 3,
            "ngram_vocab_size_base": 11, "make_ngram_vocab_size_divisible_by": 7, "split_ngram_parts": 2,
            "eos_token_id": 3, "rope_parameters": {"partial_rotary_factor": 0.5},
        },
    },
    "qwen3-scores": {
        "architectures": ["Qwen3ForSequenceClassification"], "hidden_size": 24, "intermediate_size": 20,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 6, "num_labels": 3,
        "use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1,
    },
    **{
        f"{name}-indices": {
            "architectures": [name], "hidden_size": 24, "block_ff_dim": 30, "num_hidden_layers": 3,
            "num_attention_heads": 4, "num_key_value_heads": 2, "full_attn_idxs": [1], "conv_L_cache": 3,
            "block_multiple_of": 4, "rope_theta": 1e5, "norm_eps": 1e-5,
        }
        for name in ("Lfm2Model", "Lfm2BidirectionalModel")
    },
    "rwkv7-ratio": {
        "architectures": ["RWKV7ForCausalLM"], "hidden_size": 24, "hidden_ratio": 1.5, "num_hidden_layers": 2,
        "head_dim": 12, "decay_low_rank_dim": 3, "a_low_rank_dim": 5, "v_low_rank_dim": 7, "gate_low_rank_dim": 9,
        "norm_eps": 1e-5,
    },
    "rwkv7-world": {
        "architectures": ["Rwkv7ForCausalLM"], "hidden_size": 24, "intermediate_size": 20, "num_hidden_layers": 2,
        "head_size": 12, "lora_rank_decay": 3, "lora_rank_iclr": 5, "lora_rank_value_residual_mix": 7,
        "lora_rank_gate": 9, "layer_norm_epsilon": 1e-6,
    },
    "zamba-periodic": {
        "architectures": ["ZambaForCausalLM"], "hidden_size": 24, "intermediate_size": 20, "num_hidden_layers": 8,
        "num_attention_heads": 4, "num_key_value_heads": 2, "mamba_expand": 1, "n_mamba_heads": 4,
        "attn_layer_period": 3, "attn_layer_offset": 1,
        "mamba_d_state": 5, "mamba_d_conv": 3, "mamba_dt_rank": 3, "rms_norm_eps": 1e-5,
    },
    **merged("examples"),
}  # fmt: skip

# Fields that are refused unless they have the value that follows from other fields.
COMPUTED = ("head_dim", "attention_hidden_size", "hybrid_layer_ids")

# Architectures with another architecture's configs.
ALIKE = {
    "BailingMoeV3ForCausalLM": "BailingHybridForCausalLM",
    "BertForMaskedLM": "BertModel",
    "CamembertModel": "XLMRobertaModel",
    "Idefics3ForConditionalGeneration": "SmolVLMForConditionalGeneration",
    "LFM2ForCausalLM": "Lfm2ForCausalLM",
    "Lfm2Model": "Lfm2BidirectionalModel",
    "LLaMAForCausalLM": "LlamaForCausalLM",
    "LlamaModel": "LlamaForCausalLM",
    "MambaLMHeadModel": "MambaForCausalLM",
    "MiniMaxM1ForCausalLM": "MiniMaxText01ForCausalLM",
    "ModernBertForMaskedLM": "ModernBertModel",
    "MistralModel": "MistralForCausalLM",
    "PLaMo2ForCausalLM": "Plamo2ForCausalLM",
    "Qwen2Model": "Qwen2ForCausalLM",
    "Qwen3Model": "Qwen3ForCausalLM",
    "RobertaForMaskedLM": "XLMRobertaModel",
    "RobertaModel": "XLMRobertaModel",
    "XLMRobertaForMaskedLM": "XLMRobertaModel",
    "Ernie4_5_ForCausalLM": "Ernie4_5ForCausalLM",
    "RobertaForSequenceClassification": "XLMRobertaForSequenceClassification",
    "StableLMEpochForCausalLM": "StableLmForCausalLM",
    "PhimoeForCausalLM": "PhiMoEForCausalLM",
    **merged("alike"),
}


def examples() -> dict[str, dict[str, Any]]:
    """Configs by name, with small vocabularies."""
    sizes = {"vocab_size": 40, "max_position_embeddings": 64}
    configs = {name: sizes | config for name, config in (CONFIGS | MORE).items()}
    for name in ("gpt2", "openelm"):  # these name it differently
        del configs[name]["max_position_embeddings"]
    configs |= {name: config | sizes for name, config in ENCODERS.items()}
    for name, config in MORE.items():
        if "text_config" in config:
            configs[name] = config
    first = {config["architectures"][0]: config for config in configs.values()}
    return configs | {name: {**first[other], "architectures": [name]} for name, other in ALIKE.items()}


@dataclass(frozen=True)
class Fields:
    """The config fields of one architecture: used ones; refused ones, with their allowed values; those without effect,
    with the reason; and unknown ones."""

    used: list[str]
    refused: dict[str, tuple[Any, ...]]
    without_effect: dict[str, str]
    unknown: list[str]
    rope: dict[str, tuple[Any, ...]]  # used fields of rope_parameters, with their allowed values; (): any value


def fields(architecture: str) -> Fields:
    """Sort the fields of the architecture's config class, and the fields common to all classes, by what the examples
    show."""
    family, used, refused = ARCHITECTURES[architecture], set(), {}
    for config in examples().values():
        if config["architectures"] == [architecture]:
            wrapped = Config(config, "config.json")
            refuse_what_none_can(wrapped, family)
            family.read(wrapped, {})
            used |= wrapped.looked.used
            refused |= wrapped.looked.expected
    prefix = "rope_parameters."
    rope = {name.removeprefix(prefix): refused.get(name, ()) for name in used | set(refused) if name.startswith(prefix)}
    names = sorted(_names(architecture))
    without = {name: why for name in names if name not in used and (why := without_effect(family, name))}
    # a used field with only one allowed value counts as refused
    refused = {
        name: values
        for name, values in refused.items()
        if name in names and (name not in used or len([v for v in values if v is not None]) < 2)
    }
    used |= {name for name in names if condition(family, name)}
    return Fields(
        [name for name in names if name in used and name not in refused],
        {name: refused[name] for name in names if name in refused},
        {name: why for name, why in without.items() if name not in refused},
        [name for name in names if name not in {*used, *refused, *without}],
        dict(sorted(rope.items())),
    )


def _names(architecture: str) -> set[str]:
    own = config_fields.known_fields()[architecture]
    inner = own.get("text_config")
    names = {f"text_config.{name}" for name in inner} if isinstance(inner, dict) else set()
    return names | set(own) | set(config_fields.of_all()) | {"per_layer_config"}


def tally() -> str:
    """A Markdown table of the number of fields of each kind for each architecture."""
    lines = ["| architecture | used | without effect | refused unless | unknown |", "|---|---|---|---|---|"]
    for architecture in sorted(ARCHITECTURES):
        f = fields(architecture)
        numbers = (len(part) for part in (f.used, f.without_effect, f.refused, f.unknown))
        lines.append(f"| `{architecture}` | {' | '.join(map(str, numbers))} |")
    return "\n".join(lines) + "\n"


def of_all() -> str:
    """Lists of the fields that are treated alike in every family's configs."""
    lines = [f"- {reason}: {_listed(names)}" for reason, names in WITHOUT_EFFECT.items()]
    refused = ", ".join(f"`{name}` unless {_values(values, name)}" for name, values in REFUSED.items())
    return "\n".join([*lines, "", f"Refused: {refused}."]) + "\n"


def by_architecture() -> str:
    """What becomes of each architecture's other fields; architectures with the same answer share a section."""
    same: dict[str, list[str]] = {}
    for architecture in sorted(ARCHITECTURES):
        same.setdefault(_answer(architecture), []).append(architecture)
    return "\n".join(f"### {', '.join(names)}\n\n{answer}" for answer, names in same.items())


def _answer(architecture: str) -> str:
    f, family = fields(architecture), ARCHITECTURES[architecture]
    always = [name for name in f.used if not condition(family, name)]
    lines = [f"- used: {_listed(always)}"]
    if f.rope:
        limits = (f"`{name}`" + (f" ({_values(values, name)})" if values else "") for name, values in f.rope.items())
        lines.append(f"- used of `rope_parameters`: {', '.join(limits)}")
    conditions: dict[str, list[str]] = {}
    for name in f.used:
        if when := condition(family, name):
            conditions.setdefault(when, []).append(name)
    lines += [f"- used {when}: {_listed(names)}" for when, names in conditions.items()]
    own = {name: values for name, values in f.refused.items() if name not in REFUSED}
    lines += [f"- refused unless {', '.join(f'`{name}` is {_values(own[name], name)}' for name in own)}"] if own else []
    reasons: dict[str, list[str]] = {}
    for name, why in f.without_effect.items():
        if why not in WITHOUT_EFFECT:
            reasons.setdefault(why, []).append(name)
    lines += [f"- without effect, {why}: {_listed(names)}" for why, names in reasons.items()]
    return "\n".join(lines) + "\n"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _values(values: Iterable[Any], name: str) -> str:
    """The allowed values of a field, as text. Absent and null, which are always allowed, are left out."""
    if name in COMPUTED:
        return "what follows from other fields"
    return " or ".join(json.dumps(value) for value in values if value is not None) or "null"


if __name__ == "__main__":
    print(tally(), end="")
