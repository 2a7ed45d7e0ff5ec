"""Ling 2.5."""

from typing import Any

from family_rows import FamilyRows
from reference.ling import ling

from hybrid.quant.ggml.errors import CheckpointError, UnsupportedError

NAME = "BailingMoeV2_5ForCausalLM"
_SIZES: dict[str, Any] = {
    "architectures": [NAME], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 5,
    "num_attention_heads": 6, "num_key_value_heads": 6, "head_dim": 24, "kv_lora_rank": 36, "qk_nope_head_dim": 20,
    "qk_rope_head_dim": 12, "v_head_dim": 28, "num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 32,
    "layer_group_size": 2, "group_norm_size": 3, "rope_theta": 3e4, "rms_norm_eps": 2e-4,
}  # fmt: skip
# from the published configuration class
_PUBLISHED = {
    "vocab_size": 157184, "hidden_size": 2048, "intermediate_size": 5120, "num_hidden_layers": 20,
    "num_attention_heads": 16, "num_key_value_heads": 4, "hidden_act": "silu", "use_qkv_bias": False,
    "use_bias": False, "rms_norm_eps": 1e-6, "tie_word_embeddings": False, "embedding_dropout": 0.0,
    "attention_dropout": 0.0, "output_dropout": 0.0, "initializer_range": 0.02, "max_position_embeddings": 32768,
    "rope_theta": 600000.0, "use_cache": True, "max_window_layers": 20, "rope_scaling": None, "pad_token_id": 156892,
    "eos_token_id": 156892, "num_experts": 256, "num_shared_experts": 1, "num_experts_per_tok": 8, "n_group": 8,
    "topk_group": 4, "moe_intermediate_size": 512, "first_k_dense_replace": 1, "head_dim": 128,
    "output_router_logits": False, "use_qk_norm": True, "num_nextn_predict_layers": 0, "mtp_loss_scaling_factor": 0,
    "moe_router_enable_expert_bias": True, "routed_scaling_factor": 1.0, "layer_group_size": 5, "group_norm_size": 4,
    "linear_silu": False, "kv_lora_rank": 512, "q_lora_rank": None, "qk_rope_head_dim": 64, "v_head_dim": 128,
    "qk_nope_head_dim": 128, "qk_head_dim": 192, "rope_interleave": True, "partial_rotary_factor": 0.5,
    "score_function": "sigmoid", "scoring_func": "sigmoid", "seq_aux": True, "topk_method": "noaux_tc",
    "router_dtype": "fp32",
}  # fmt: skip
ROWS = FamilyRows(
    configs={
        "bailingmoe2-5": {**_SIZES, "q_lora_rank": None, "n_group": 4, "topk_group": 2, "routed_scaling_factor": 2.5},
        "bailingmoe2-5-wide": {
            **_SIZES, "num_attention_heads": 5, "num_key_value_heads": 5, "head_dim": 16, "group_norm_size": 1,
            "partial_rotary_factor": 0.75, "q_lora_rank": 33, "num_shared_experts": 2, "first_k_dense_replace": 2,
            "num_hidden_layers": 7, "layer_group_size": 3, "tie_word_embeddings": True,
        },
    },
    repeated=("bailingmoe2-5-wide",),
    twins={NAME: ling},
    defaults={
        NAME: {
            "first_k_dense_replace": 1, "partial_rotary_factor": 0.5, "n_group": 1, "topk_group": 1,
            "routed_scaling_factor": 1.0, "num_shared_experts": 1,
        },
    },
    published={NAME: _PUBLISHED},
    errors=(
        ("bailingmoe2-5", {"qk_rope_head_dim": 10}, CheckpointError, "qk_rope_head_dim = 10"),
        ("bailingmoe2-5", {"rope_interleave": False}, UnsupportedError, "rope_interleave = false"),
        ("bailingmoe2-5", {"group_norm_size": 5}, CheckpointError, "group_norm_size = 5"),
    ),
    notes=(("bailingmoe2-5", {}, "it has no such architecture"),),
    refused=("bailingmoe2-5", "bailingmoe2-5-wide"),
    loaded=("bailingmoe2-5",),
)  # fmt: skip
