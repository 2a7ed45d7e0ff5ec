"""GLM-5."""

from functools import partial
from typing import Any

from family_rows import FamilyRows
from reference.deepseek32 import deepseek32

from hybrid.quant.ggml.errors import CheckpointError, UnsupportedError

NAME = "GlmMoeDsaForCausalLM"
_SIZES: dict[str, Any] = {
    "architectures": [NAME], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 5, "kv_lora_rank": 36,
    "qk_nope_head_dim": 20, "qk_rope_head_dim": 12, "v_head_dim": 28, "num_attention_heads": 3,
    "num_key_value_heads": 3, "first_k_dense_replace": 1, "n_routed_experts": 12, "num_experts_per_tok": 3,
    "moe_intermediate_size": 64, "q_lora_rank": 40, "rope_theta": 2e4,
    "index_n_heads": 21, "index_head_dim": 64, "index_topk": 13,
}  # fmt: skip
ROWS = FamilyRows(
    configs={
        "glm-dsa": {
            **_SIZES, "indexer_types": ["full", "full", "shared", "shared", "full"], "rms_norm_eps": 1e-6,
        },
        "glm-dsa-all": {
            **_SIZES, "num_hidden_layers": 3, "index_n_heads": 13, "index_head_dim": 18, "index_topk": 9, "n_group": 4,
            "topk_group": 2, "norm_topk_prob": False, "n_shared_experts": 2, "routed_scaling_factor": 1.3,
            "mlp_layer_types": ["dense", "dense", "sparse"], "tie_word_embeddings": True,
        },
    },
    twins={NAME: partial(deepseek32, neox=False)},
    defaults={NAME: {"rms_norm_eps": 1e-5, "routed_scaling_factor": 2.5, "n_group": 1, "topk_group": 1}},
    model_types={NAME: "glm_moe_dsa"},
    examples={
        "glm-dsa-steps": {
            **_SIZES, "vocab_size": 40, "max_position_embeddings": 64, "index_topk_freq": 4,
            "index_skip_topk_offset": 3, "index_topk_pattern": None, "index_share_for_mtp_iteration": True,
            "indexer_rope_interleave": True, "moe_router_dtype": "float32",
            "rope_parameters": {"rope_theta": 2e4, "rope_type": "default"},
        },
        "glm-dsa-pattern": {
            **_SIZES, "vocab_size": 40, "max_position_embeddings": 64, "index_topk_pattern": "FFSSF",
        },
    },
    errors=(
        ("glm-dsa", {"indexer_types": ["shared", *["full"] * 4]}, UnsupportedError, "makes layer 0 take"),
        ("glm-dsa", {"indexer_rope_interleave": False}, UnsupportedError, "indexer_rope_interleave = false"),
        ("glm-dsa", {"partial_rotary_factor": 0.5}, UnsupportedError, "partial_rotary_factor = 0.5"),
        ("glm-dsa", {"q_lora_rank": None}, CheckpointError, "q_lora_rank = null"),
    ),
    converted={"glm-dsa": {"model_type": "glm_moe_dsa", "scoring_func": "sigmoid"}},
    refused=("glm-dsa-all",),  # it turns index vectors of 64 values or a multiple of them
)  # fmt: skip
