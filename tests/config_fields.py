"""The fields of transformers' config classes, names and defaults, for the architectures that can be converted.

    python tests/config_fields.py     # writes tests/data/config_fields.json

Writing the file needs transformers, here 5.24.0, and the package in one environment. Tests need neither: they read the
file. Architectures that transformers lacks are below, with the fields of published configs.
"""

import dataclasses
import inspect
import json
import re
import sys
from functools import cache
from pathlib import Path
from typing import Any

from families import merged

FILE = Path(__file__).resolve().parent / "data" / "config_fields.json"

# Other names of architectures that transformers has.
SAME = {
    "LFM2ForCausalLM": "Lfm2ForCausalLM",
    "Lfm2BidirectionalModel": "Lfm2Model",
    "LLaMAForCausalLM": "LlamaForCausalLM",
    "MambaLMHeadModel": "MambaForCausalLM",
    "Ernie4_5_ForCausalLM": "Ernie4_5ForCausalLM",
    "StableLMEpochForCausalLM": "StableLmForCausalLM",
    "PhiMoEForCausalLM": "PhimoeForCausalLM",
    "BailingMoeV3ForCausalLM": "BailingHybridForCausalLM",
    **merged("alike"),
}

_MINIMAX: dict[str, Any] = {
    "vocab_size": 200064, "hidden_size": 6144, "intermediate_size": 9216, "num_hidden_layers": 80,
    "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 128, "hidden_act": "silu",
    "max_position_embeddings": 10240000, "rms_norm_eps": 1e-5, "rope_theta": 10000000, "rotary_dim": 64,
    "sliding_window": None, "attention_dropout": 0.0, "num_experts_per_tok": 2, "num_local_experts": 32,
    "output_router_logits": False, "router_aux_loss_coef": 0.001, "router_jitter_noise": 0.0,
    "attn_type_list": [0, 0, 0, 0, 0, 0, 0, 1], "postnorm": True, "layernorm_full_attention_alpha": 3.5565588200778455,
    "layernorm_full_attention_beta": 1.0, "layernorm_linear_attention_alpha": 3.5565588200778455,
    "layernorm_linear_attention_beta": 1.0, "layernorm_mlp_alpha": 3.5565588200778455, "layernorm_mlp_beta": 1.0,
    "shared_intermediate_size": 0, "shared_moe_mode": "sigmoid", "initializer_range": 0.02, "use_cache": True,
    "tie_word_embeddings": False, "bos_token_id": None, "eos_token_id": None,
}  # fmt: skip
_PLAMO2: dict[str, Any] = {
    "vocab_size": 100000, "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16,
    "num_attention_heads": 16, "num_key_value_heads": 1, "hidden_size_per_head": 128,
    "max_position_embeddings": 10485760, "attention_window_size": 2048, "full_attention_idx": [],
    "sliding_window": 2048, "mamba_d_state": 64, "mamba_d_conv": 4, "mamba_num_heads": 32, "mamba_step": 2,
    "mamba_chunk_size": 256, "mamba_enabled": True, "rms_norm_eps": 1e-6, "rope_theta": 10000, "linear_type": "normal",
    "fp8_accum_dtype": None, "eval_attention_n_bit": None, "eval_mlp_n_bit": None, "image_token_id": None,
    "image_feature_size": None, "image_proj_type": "linear", "use_cache": True, "tie_word_embeddings": True,
    "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 3,
}  # fmt: skip
_KIMI_K3: dict[str, Any] = {
    "bos_token_id": 163584, "eos_token_id": 163586, "pad_token_id": 163839, "media_placeholder_token_id": 163605,
    "ignore_index": -100, "use_unified_vision_chunk": True, "video_placeholder": "<|video|>",
    "tie_word_embeddings": False, "vision_config": {"patch_size": 14},
    "text_config": {
        "vocab_size": 163840, "hidden_size": 7168, "intermediate_size": 33792, "num_hidden_layers": 93, "head_dim": 74,
        "num_attention_heads": 96, "num_key_value_heads": 96, "moe_intermediate_size": 3072, "num_experts": 896,
        "num_experts_per_token": 16, "num_shared_experts": 2, "first_k_dense_replace": 1, "moe_layer_freq": 1,
        "moe_renormalize": True, "moe_router_activation_func": "sigmoid", "routed_scaling_factor": 1.0,
        "use_grouped_topk": True, "num_expert_group": 1, "topk_group": 1, "topk_method": "noaux_tc",
        "routed_expert_hidden_size": 3584, "latent_moe_use_norm": True, "q_lora_rank": 1536, "kv_lora_rank": 512,
        "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "mla_use_nope": True,
        "mla_use_output_gate": True, "attn_res_block_size": 12, "hidden_act": "situ", "activation_situ_beta": 4.0,
        "activation_situ_linear_beta": 25.0, "num_nextn_predict_layers": 0, "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0, "rope_scaling": None, "max_position_embeddings": 1048576, "initializer_range": 0.02,
        "use_cache": True, "tie_word_embeddings": False, "bos_token_id": 163584, "eos_token_id": 163586,
        "pad_token_id": 163839,
        "linear_attn_config": {
            "full_attn_layers": [4, 8], "kda_layers": [1, 2, 3, 5, 6, 7], "head_dim": 128, "num_heads": 96,
            "short_conv_kernel_size": 4, "use_full_rank_gate": True, "gate_lower_bound": -5.0,
        },
    },
}  # fmt: skip
_PHI4_FLASH: dict[str, Any] = {
    "vocab_size": 200064, "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 32,
    "num_attention_heads": 40, "num_key_value_heads": 20, "hidden_act": "silu", "max_position_embeddings": 262144,
    "layer_norm_eps": 1e-5, "rope_theta": 10000.0, "sliding_window": 512, "layer_types": None, "mb_per_layer": 2,
    "mamba_d_state": 16, "mamba_d_conv": 4, "mamba_expand": 2, "mamba_dt_rank": "auto", "mamba_conv_bias": True,
    "mamba_proj_bias": False, "mlp_bias": False, "lm_head_bias": False, "resid_pdrop": 0.0, "embd_pdrop": 0.0,
    "attention_dropout": 0.0, "initializer_range": 0.02, "use_cache": True, "tie_word_embeddings": True,
    "bos_token_id": 199999, "eos_token_id": 199999, "pad_token_id": 199999,
}  # fmt: skip
# From published configs, with typical values.
PUBLISHED: dict[str, dict[str, Any]] = {
    "KimiK3ForConditionalGeneration": _KIMI_K3,
    "Phi4FlashForCausalLM": _PHI4_FLASH,
    "Plamo2ForCausalLM": _PLAMO2,
    "PLaMo2ForCausalLM": _PLAMO2,
    "MiniMaxText01ForCausalLM": _MINIMAX,
    "MiniMaxM1ForCausalLM": _MINIMAX,
    "OpenELMForCausalLM": {
        "activation_fn_name": "swish", "ffn_dim_divisor": 256, "ffn_multipliers": [0.5, 4.0], "ffn_with_glu": True,
        "head_dim": 64, "max_context_length": 2048, "model_dim": 1280, "normalization_layer_name": "rms_norm",
        "normalize_qk_projections": True, "num_gqa_groups": 4, "num_kv_heads": [3, 5], "num_query_heads": [12, 20],
        "num_transformer_layers": 16, "qkv_multipliers": [0.5, 1.0], "rope_freq_constant": 10000,
        "rope_max_length": 4096, "share_input_output_layers": True, "vocab_size": 32000, "initializer_range": 0.02,
        "use_cache": True, "bos_token_id": 1, "eos_token_id": 2,
    },
    "Rwkv6ForCausalLM": {
        "vocab_size": 65536, "hidden_size": 2048, "attention_hidden_size": 2048, "intermediate_size": None,
        "num_hidden_layers": 24, "head_size": 64, "head_size_divisor": 8, "layer_norm_epsilon": 1e-5,
        "rescale_every": 6, "num_attention_heads": 64, "tie_word_embeddings": False, "use_cache": True,
        "context_length": 4096, "model_version": "6_0", "bos_token_id": 0, "eos_token_id": 0,
    },
    "RWKV7ForCausalLM": {
        "vocab_size": 65536, "hidden_size": 2048, "hidden_ratio": 4.0, "intermediate_size": 8192,
        "num_hidden_layers": 24, "head_dim": 64, "num_heads": 32, "decay_low_rank_dim": 96, "gate_low_rank_dim": 256,
        "a_low_rank_dim": 96, "v_low_rank_dim": 64, "hidden_act": "sqrelu", "max_position_embeddings": 2048,
        "norm_first": True, "norm_bias": True, "norm_eps": 1e-5, "attn": None, "attn_mode": "chunk", "use_cache": True,
        "fuse_norm": True, "fuse_cross_entropy": True, "fuse_linear_cross_entropy": False, "use_l2warp": True,
        "initializer_range": 0.02, "value_dim": [2048], "tie_word_embeddings": False, "bos_token_id": 0,
        "eos_token_id": 0, "pad_token_id": None,
    },
    "Rwkv7ForCausalLM": {
        "vocab_size": 65536, "hidden_size": 2048, "attention_hidden_size": 2048, "intermediate_size": 8192,
        "num_hidden_layers": 24, "head_size": 64, "layer_norm_epsilon": 1e-5, "lora_rank_decay": 96,
        "lora_rank_iclr": 96, "lora_rank_value_residual_mix": 64, "lora_rank_gate": 256, "tie_word_embeddings": False,
        "use_cache": True, "bos_token_id": 0, "eos_token_id": 0,
    },
    "RWKV6Qwen2ForCausalLM": {
        "vocab_size": 152064, "hidden_size": 5120, "intermediate_size": 27648, "num_hidden_layers": 64,
        "num_attention_heads": 40, "num_key_value_heads": 8, "lora_rank_tokenshift": 96, "lora_rank_decay": 128,
        "attention_bias": True, "attention_output_bias": False, "gate_rank_type": 1, "use_rope": False,
        "hidden_act": "silu", "max_position_embeddings": 32768, "max_window_layers": 64, "rms_norm_eps": 1e-5,
        "rope_scaling": None, "rope_theta": 1000000.0, "sliding_window": None, "use_sliding_window": False,
        "attention_dropout": 0.0, "initializer_range": 0.02, "tie_word_embeddings": False, "use_cache": True,
        "bos_token_id": 151643, "eos_token_id": 151645,
    },
    "RwkvHybridForCausalLM": {
        "vocab_size": 152064, "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28,
        "num_attention_heads": 28, "num_key_value_heads": 4, "head_size": 64, "head_size_divisor": 8,
        "wkv_version": 7, "wkv_layers": "full", "wkv_has_gate": True, "wkv_has_group_norm": True,
        "hidden_act": "silu", "max_position_embeddings": 32768,
        "max_window_layers": 28, "rms_norm_eps": 1e-6, "rope_scaling": None, "rope_theta": 1000000.0,
        "sliding_window": None, "use_sliding_window": False, "attention_dropout": 0.0, "initializer_range": 0.02,
        "tie_word_embeddings": False, "use_cache": True, "bos_token_id": 151643, "eos_token_id": 151645,
    },
    **merged("published"),
}  # fmt: skip


# Vision parts of published configs, if transformers' default is another one.
TOWERS_OF = {"Granite4VisionForConditionalGeneration": "siglip_vision_model"}


def has_class(architecture: str) -> bool:
    """Whether transformers has this architecture."""
    return any(architecture in of_class["architectures"] for of_class in _read()["classes"].values())


@cache
def _read() -> dict[str, Any]:
    data: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return data


def of_all() -> dict[str, Any]:
    """The fields that all classes have, with defaults."""
    fields: dict[str, Any] = _read()["of all"]
    return fields


def known_fields() -> dict[str, dict[str, Any]]:
    """Config fields with defaults, by architecture; `text_config` holds the text part's fields."""
    classes: dict[str, dict[str, Any]] = _read()["classes"]
    fields = {name: of_class["fields"] for of_class in classes.values() for name in of_class["architectures"]}
    fields |= PUBLISHED
    return fields | {other: fields[name] for other, name in SAME.items()}


def tower_fields() -> dict[str, dict[str, Any]]:
    """Fields of vision_config with defaults, by architecture."""
    fields: dict[str, dict[str, Any]] = _read()["towers"]
    return fields


def main() -> None:
    import transformers
    from transformers import CONFIG_MAPPING

    from hybrid.convert.architectures import ARCHITECTURES
    from hybrid.convert.vision import TOWERS

    common = _defaults(transformers.PreTrainedConfig)
    classes: dict[str, dict[str, Any]] = {}
    for name in sorted(ARCHITECTURES):
        if name in SAME or name in PUBLISHED:
            continue
        config_class = getattr(transformers, name).config_class
        of_class = classes.setdefault(config_class.__name__, {"architectures": [], "fields": {}})
        of_class["architectures"].append(name)
        of_class["fields"] = _fields(getattr(transformers, name), config_class, common)
    towers = {}
    for name in sorted(TOWERS):
        model = getattr(transformers, name)
        spec = model.config_class.sub_configs_defaults["vision_config"]
        own = CONFIG_MAPPING[TOWERS_OF[name]] if name in TOWERS_OF else _class_of(spec)
        towers[name] = _fields(model, own, common)
    data = {"transformers": transformers.__version__, "of all": common, "towers": towers, "classes": classes}
    FILE.write_text(_compact(data), encoding="utf-8")


def _fields(model: Any, config_class: Any, common: dict[str, Any]) -> dict[str, Any]:
    """The class's own fields, their aliases, and other fields that its code reads from a file (null: no default)."""
    own = {name: value for name, value in _defaults(config_class).items() if name not in common}
    code = inspect.getsource(sys.modules[config_class.__module__])
    source = inspect.getsource(sys.modules[model.__module__])
    if "text_config" in config_class.sub_configs_defaults:
        code = source = ""
    popped = set(re.findall(r'kwargs\.(?:pop|get|setdefault)\(\s*"(\w+)"', code)) | set(config_class.attribute_map)
    popped |= set(re.findall(r'getattr\(\s*(?:self\.)?(?:text_)?config,\s*"(\w+)"', source))
    if "rope_parameters" in own:
        popped |= {"rope_theta", "rope_scaling"} | ({"partial_rotary_factor"} if "partial_rotary" in source else set())
    for name in sorted(popped - {"_attn_implementation"}):
        own.setdefault(name, None)
    for name, spec in config_class.sub_configs_defaults.items():
        if name == "text_config":
            own[name] = _fields(model, _class_of(spec), common)
    return own


def _class_of(spec: Any) -> Any:
    """The config class of the text part; the usual one if several are possible."""
    from transformers import CONFIG_MAPPING, AutoConfig

    return CONFIG_MAPPING[spec.model_type] if spec.config_class is AutoConfig else spec.config_class


def _defaults(config_class: Any) -> dict[str, Any]:
    return {
        f.name: None if f.default is dataclasses.MISSING else f.default
        for f in dataclasses.fields(config_class)
        if f.default_factory is dataclasses.MISSING
    }


def _compact(data: dict[str, Any]) -> str:
    """JSON text with one line for each class; infinity is spelled as in config.json of transformers 5."""
    text = json.dumps(data["classes"], default=list).replace("Infinity", '{"__float__": "Infinity"}')
    rows = [f'  "{name}": {json.dumps(value)}' for name, value in json.loads(text).items()]
    head = "".join(f' "{key}": {json.dumps(data[key])},\n' for key in ("transformers", "of all"))
    towers = ",\n".join(f'  "{name}": {json.dumps(fields)}' for name, fields in data["towers"].items())
    head += ' "towers": {\n' + towers + "\n },\n"
    return "{\n" + head + ' "classes": {\n' + ",\n".join(rows) + "\n }\n}\n"


if __name__ == "__main__":
    main()
