"""Ling 2.0, its linear models, and Sarvam 30B."""

from typing import Any

from family_rows import FamilyRows
from reference.ling import ling

from hybrid.quant.ggml.errors import CheckpointError, UnsupportedError

NAME, LINEAR, SARVAM = "BailingMoeV2ForCausalLM", "BailingMoeLinearV2ForCausalLM", "SarvamMoEForCausalLM"
_SIZES: dict[str, Any] = {
    "architectures": [NAME], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 3,
    "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 24, "num_experts": 8, "num_experts_per_tok": 3,
    "moe_intermediate_size": 32, "num_shared_experts": 1, "rope_theta": 3e4, "rms_norm_eps": 2e-4,
}  # fmt: skip
_LINEAR = {
    **_SIZES, "architectures": [LINEAR], "num_hidden_layers": 7, "layer_group_size": 3, "group_norm_size": 4,
    "first_k_dense_replace": 1,
}  # fmt: skip
# Ling-mini-2.0's and Ring-mini-linear-2.0's
_LING = {
    "attention_dropout": 0.0, "embedding_dropout": 0.0, "eos_token_id": 156892, "first_k_dense_replace": 1,
    "head_dim": 128, "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 5120,
    "max_position_embeddings": 32768, "max_window_layers": 20, "moe_intermediate_size": 512,
    "moe_router_enable_expert_bias": True, "moe_shared_expert_intermediate_size": 512, "n_group": 8,
    "norm_topk_prob": True, "num_attention_heads": 16, "num_experts": 256, "num_experts_per_tok": 8,
    "num_hidden_layers": 20, "num_key_value_heads": 4, "num_nextn_predict_layers": 0, "num_shared_experts": 1,
    "output_dropout": 0.0, "output_router_logits": False, "pad_token_id": 156892, "partial_rotary_factor": 0.5,
    "rms_norm_eps": 1e-6, "rope_scaling": None, "rope_theta": 600000, "routed_scaling_factor": 2.5,
    "router_dtype": "fp32", "score_function": "sigmoid", "tie_word_embeddings": False, "topk_group": 4,
    "use_bias": False, "use_cache": True, "use_qk_norm": True, "use_qkv_bias": False, "use_rmsnorm": True,
    "vocab_size": 157184, "mtp_loss_scaling_factor": 0,
}  # fmt: skip
_RING = {**_LING, "layer_group_size": 5, "group_norm_size": 4, "linear_silu": False}
# of transformers' SarvamMoEConfig: a class of models of this name is not there
_PUBLISHED_SARVAM = {
    "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": None, "eos_token_id": 1,
    "first_k_dense_replace": 1, "head_dim": 64, "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.006,
    "intermediate_size": 8192, "max_position_embeddings": 131072, "moe_intermediate_size": 1024, "n_group": 1,
    "n_routed_experts": 128, "n_shared_experts": 1, "norm_topk_prob": True, "num_attention_heads": 64,
    "num_experts_per_tok": 6, "num_hidden_layers": 19, "num_key_value_heads": 4, "num_mtp_layers": 0,
    "output_router_logits": False, "pad_token_id": 0, "rms_norm_eps": 1e-6, "rope_parameters": None,
    "routed_scaling_factor": 2.5, "tie_word_embeddings": False, "topk_group": 1, "use_cache": True,
    "use_qk_norm": True, "vocab_size": 262144,
}  # fmt: skip
_DEFAULTS = {
    "first_k_dense_replace": 0, "partial_rotary_factor": 0.5, "n_group": 1, "topk_group": 1,
    "routed_scaling_factor": 2.5,
}  # fmt: skip
_SARVAM = {
    **{key: value for key, value in _SIZES.items() if key not in ("num_experts", "num_shared_experts")},
    "architectures": [SARVAM], "head_dim": 16, "n_routed_experts": 8, "n_shared_experts": 1,
}  # fmt: skip
ROWS = FamilyRows(
    configs={
        "sarvam-moe": _SARVAM,
        "sarvam-moe-groups": {
            **_SARVAM, "n_group": 4, "topk_group": 2, "n_shared_experts": 2, "first_k_dense_replace": 0, "head_dim": 20,
            "routed_scaling_factor": 1.4, "tie_word_embeddings": True,
        },
        "bailingmoe2": {**_SIZES, "head_dim": None, "n_group": 4, "topk_group": 2, "tie_word_embeddings": False},
        "bailingmoe2-plain": {
            **_SIZES, "num_shared_experts": 2, "moe_shared_expert_intermediate_size": 32, "first_k_dense_replace": 2,
            "partial_rotary_factor": 0.75, "routed_scaling_factor": 1.3, "tie_word_embeddings": True,
        },
        "bailingmoe-linear": {**_LINEAR, "n_group": 2, "topk_group": 1},
        "bailingmoe-linear-wide": {
            **_LINEAR, "num_attention_heads": 5, "num_key_value_heads": 1, "head_dim": 20, "layer_group_size": 2,
            "group_norm_size": 1, "num_hidden_layers": 4, "tie_word_embeddings": True,
            "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
        },
    },
    repeated=("bailingmoe2-plain",),
    twins=dict.fromkeys((NAME, LINEAR, SARVAM), ling),
    defaults={
        **dict.fromkeys((NAME, LINEAR), _DEFAULTS),
        SARVAM: {**_DEFAULTS, "first_k_dense_replace": 1, "partial_rotary_factor": 1.0},
    },
    model_types={SARVAM: "sarvam_moe"},
    published={NAME: _LING, LINEAR: _RING, SARVAM: _PUBLISHED_SARVAM},
    alike={"BailingMoeLinearForCausalLM": LINEAR},
    errors=(
        ("bailingmoe2", {"use_qk_norm": False}, UnsupportedError, "use_qk_norm = false"),
        ("bailingmoe2", {"rotary_dim": 10}, UnsupportedError, "rotary_dim = 10"),
        ("bailingmoe2", {"router_type": "MultiRouter"}, UnsupportedError, 'router_type = "MultiRouter"'),
        ("bailingmoe2", {"num_experts_per_tok": 1}, CheckpointError, "num_experts_per_tok = 1"),
        ("bailingmoe-linear", {"group_norm_size": 5}, CheckpointError, "group_norm_size = 5"),
        ("bailingmoe-linear", {"linear_silu": True}, UnsupportedError, "linear_silu = true"),
    ),
    notes=(
        ("bailingmoe2", {"head_dim": 24}, "heads that together are as wide as the model"),
        ("bailingmoe2", {"tie_word_embeddings": True}, "an output matrix apart from the embedding"),
        ("bailingmoe-linear", {}, "it has no such architecture"),
    ),
    converted={
        "sarvam-moe": {
            **_DEFAULTS, "first_k_dense_replace": 1, "num_experts": 8, "num_shared_experts": 1, "norm_topk_prob": True,
            "score_function": "sigmoid", "partial_rotary_factor": 1.0,
        },
        "bailingmoe2": {
            **_DEFAULTS, "n_group": 4, "topk_group": 2, "norm_topk_prob": True, "score_function": "sigmoid",
        },
    },
    refused=("bailingmoe2-plain", "sarvam-moe-groups", "bailingmoe-linear", "bailingmoe-linear-wide"),
    loaded=("bailingmoe-linear",),
)  # fmt: skip
