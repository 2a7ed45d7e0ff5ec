"""Kimi K3."""

from typing import Any

from family_rows import Config, FamilyRows
from reference.kimi_k3 import kimi_k3

from hybrid.quant.ggml.errors import CheckpointError, UnsupportedError

NAME = "KimiK3ForConditionalGeneration"
_K3: Config = {
    "architectures": [NAME], "hidden_act": "situ", "mla_use_nope": True, "num_experts": 12,
    "num_experts_per_token": 3, "moe_intermediate_size": 64,
}  # fmt: skip
_LINEAR: Config = {
    "full_attn_layers": [2, 5], "kda_layers": [1, 3, 4], "head_dim": 24, "num_heads": 3, "short_conv_kernel_size": 3,
    "use_full_rank_gate": True, "gate_lower_bound": -3.5,
}  # fmt: skip
_PUBLISHED: Config = {
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


def _linear(**more: Any) -> Config:
    """Settings of the delta rule."""
    return {"linear_attn_config": {**_LINEAR, "kda_layers": None, **more}}


ROWS = FamilyRows(
    configs={
        "kimi-k3": {
            **_K3, "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 5, "num_attention_heads": 3,
            "num_key_value_heads": 3, "q_lora_rank": 40, "kv_lora_rank": 36, "qk_nope_head_dim": 20,
            "qk_rope_head_dim": 12, "v_head_dim": 28, "mla_use_output_gate": True, "routed_expert_hidden_size": 32,
            "latent_moe_use_norm": True, "num_shared_experts": 2, "routed_scaling_factor": 1.7,
            "attn_res_block_size": 2, "activation_situ_beta": 1.5, "activation_situ_linear_beta": 2.5,
            "rms_norm_eps": 1e-6, "tie_word_embeddings": False,
            "linear_attn_config": _LINEAR,
        },
        "kimi-k3-wide": {
            **_K3, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4, "num_attention_heads": 5,
            "num_key_value_heads": 5, "kv_lora_rank": 33, "qk_nope_head_dim": 17, "qk_rope_head_dim": 0,
            "v_head_dim": 9, "num_shared_experts": 0, "attn_res_block_size": 7, "activation_situ_beta": 0.75,
            "rms_norm_eps": 1e-5, "first_k_dense_replace": 0, "moe_renormalize": False, "num_expert_group": 4,
            "topk_group": 2,
            "linear_attn_config": {
                "full_attn_layers": [1, 3], "head_dim": 7, "num_heads": 2, "short_conv_kernel_size": 4,
                "use_full_rank_gate": True,
            },
        },
    },
    twins={NAME: kimi_k3},
    published={NAME: _PUBLISHED},
    examples={
        "kimi-k3-pictures": {
            "architectures": [NAME], "vision_config": {"hidden_size": 7},
            "text_config": {
                "vocab_size": 40, "hidden_size": 24, "intermediate_size": 20, "num_hidden_layers": 3,
                "hidden_act": "situ", "num_attention_heads": 3, "num_key_value_heads": 3, "kv_lora_rank": 9,
                "qk_nope_head_dim": 6, "qk_rope_head_dim": 4, "v_head_dim": 5, "mla_use_nope": True, "num_experts": 4,
                "num_experts_per_token": 2, "moe_intermediate_size": 10, "attn_res_block_size": 2,
                "max_position_embeddings": 64, "q_lora_rank": 7, "routed_expert_hidden_size": 8, "rms_norm_eps": 1e-5,
                "latent_moe_use_norm": True, "mla_use_output_gate": True,
                "linear_attn_config": {
                    "full_attn_layers": [2], "kda_layers": [1, 3], "head_dim": 6, "num_heads": 3,
                    "short_conv_kernel_size": 3, "use_full_rank_gate": True, "gate_lower_bound": -5.0,
                },
            },
        },
    },
    errors=(
        ("kimi-k3", {"hidden_act": "silu"}, UnsupportedError, 'hidden_act = "silu" is not supported, only "situ" is'),
        ("kimi-k3", {"mla_use_nope": False}, UnsupportedError, "mla_use_nope = false is not supported, only true is"),
        (
            "kimi-k3", {"mla_use_nope": None}, CheckpointError,
            "mla_use_nope = null .*expected true, as use_full_rank_gate",
        ),
        ("kimi-k3", {"attn_res_block_size": None}, CheckpointError, "has no attn_res_block_size"),
        ("kimi-k3", {"attn_res_block_size": 0}, CheckpointError, "attn_res_block_size = 0.*from 1"),
        ("kimi-k3", {"activation_situ_beta": 0}, CheckpointError, "activation_situ_beta = 0.*a positive number"),
        ("kimi-k3", _linear(use_full_rank_gate=False), UnsupportedError, "use_full_rank_gate = false is not supported"),
        ("kimi-k3", _linear(gate_lower_bound=1.0), CheckpointError, "gate_lower_bound = 1.0.*a negative number"),
        (
            "kimi-k3", _linear(full_attn_layers=[6]), CheckpointError,
            "full_attn_layers = .6.*numbers of layers from 1 to 5",
        ),
    ),
    notes=(
        ("kimi-k3", _linear(num_heads=4), "as many heads as attention"),
        ("kimi-k3", {"rms_norm_eps": 1e-5}, "normalizes latent vectors with an epsilon of 1e-05"),
        ("kimi-k3", {"tie_word_embeddings": True}, "the output matrix is one of its own"),
    ),
    converted={
        "kimi-k3": {
            "model_type": "kimi_k3", "moe_renormalize": True, "first_k_dense_replace": 1,
            "moe_router_activation_func": "sigmoid",
        },
    },
    refused=("kimi-k3-wide",),
    sizes={"kimi-k3": 2779.5, "kimi-k3-slice": 4.464},  # stated as 2.8 T
    loaded=("kimi-k3",),
)  # fmt: skip
