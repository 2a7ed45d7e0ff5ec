"""Gemma 4."""

from family_rows import N_VOCAB, Config, FamilyRows
from reference.gemma4 import gemma4

NAME = "Gemma4ForCausalLM"
# Defaults of transformers that llama.cpp's converter does not know.
_DEFAULTS: Config = {
    "vocab_size": 2000,
    "model_type": "gemma4_text",
    "rope_parameters": {
        "full_attention": {"rope_type": "proportional", "rope_theta": 1e6, "partial_rotary_factor": 0.25},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
    },
}
ROWS = FamilyRows(
    configs={
        "gemma4": {
            "architectures": [NAME], "hidden_size": 96, "intermediate_size": 104, "num_hidden_layers": 6,
            "layer_types": ["sliding_attention", "full_attention"] * 3, "num_attention_heads": 6,
            "num_key_value_heads": 3, "head_dim": 24, "global_head_dim": 40, "num_global_key_value_heads": 2,
            "attention_k_eq_v": True, "num_kv_shared_layers": 2, "use_double_wide_mlp": True,
            "hidden_size_per_layer_input": 20, "vocab_size_per_layer_input": N_VOCAB, "rms_norm_eps": 1e-6,
            "sliding_window": 11, "final_logit_softcapping": 6.0, "enable_moe_block": True, "num_experts": 7,
            "top_k_experts": 3, "moe_intermediate_size": 56,
        },
        "gemma4-window": {  # layers in the usual order, without experts and embeddings for layers, like 31B
            "architectures": [NAME], "hidden_size": 64, "intermediate_size": 72, "num_hidden_layers": 7,
            "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 18, "global_head_dim": 34,
            "rms_norm_eps": 1e-5, "num_global_key_value_heads": 1, "attention_k_eq_v": True,
            "hidden_size_per_layer_input": 0, "sliding_window": 9,
        },
        "gemma4-order": {  # llama.cpp does not run it; without experts, like E2B
            "architectures": [NAME], "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 5,
            "layer_types": [
                "full_attention", "sliding_attention", "sliding_attention", "full_attention", "sliding_attention",
            ],
            "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 20, "global_head_dim": 26,
            "num_global_key_value_heads": 3, "num_kv_shared_layers": 2, "hidden_size_per_layer_input": 9,
            "vocab_size_per_layer_input": N_VOCAB + 5, "rms_norm_eps": 2e-4, "sliding_window": 7,
            "rope_parameters": {
                "full_attention": {"rope_type": "proportional", "rope_theta": 3e4, "partial_rotary_factor": 0.4},
                "sliding_attention": {"rope_type": "default", "rope_theta": 2e3},
            },
        },
    },
    twins={NAME: gemma4},
    noise={"gemma4": 7.3e-5},
    model_types={NAME: "gemma4_text"},
    examples={
        "gemma4-pictures": {
            "architectures": ["Gemma4ForConditionalGeneration"], "vision_config": {"hidden_size": 7},
            "text_config": {
                "vocab_size": 40, "hidden_size": 18, "intermediate_size": 20, "num_hidden_layers": 4,
                "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 8,
                "layer_types": ["sliding_attention", "full_attention"] * 2, "sliding_window": 5,
                "max_position_embeddings": 64, "hidden_size_per_layer_input": 6, "vocab_size_per_layer_input": 40,
                "num_kv_shared_layers": 1, "use_double_wide_mlp": True, "final_logit_softcapping": 3.0,
                "enable_moe_block": True, "num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 10,
                "per_layer_config": {i: {"head_dim": 12} for i in ("1", "3")}, "attention_k_eq_v": True,
            },
        },
    },
    converted={"gemma4": {**_DEFAULTS, "vocab_size_per_layer_input": 2000}, "gemma4-window": _DEFAULTS},
    refused=("gemma4-order",),
    sizes={"gemma4-e2b": 4.63},
    loaded=("gemma4",),
)  # fmt: skip
