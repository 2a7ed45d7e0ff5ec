"""Nemotron 3 Puzzle."""

from typing import Any

from family_rows import FamilyRows
from reference.nemotron_h import nemotron_h

from hybrid.quant.ggml.errors import CheckpointError, UnsupportedError

NAME = "NemotronHPuzzleForCausalLM"


def _experts(width: int, used: int) -> dict[str, Any]:
    return {"block_type": "moe", "moe_intermediate_size": width, "num_experts_per_tok": used}


MAMBA, ATTENTION = {"block_type": "mamba"}, {"block_type": "attention"}
_SIZES: dict[str, Any] = {
    "architectures": [NAME], "hidden_size": 96, "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 32,
    "mamba_num_heads": 8, "mamba_head_dim": 16, "ssm_state_size": 16, "n_groups": 2, "conv_kernel": 4,
    "layer_norm_epsilon": 1e-5, "n_routed_experts": 7, "moe_shared_expert_intermediate_size": 160,
    "routed_scaling_factor": 2.5, "moe_latent_size": 64, "tie_word_embeddings": False,
    "block_configs": [MAMBA, _experts(32, 5), ATTENTION, MAMBA, _experts(96, 2)],
}  # fmt: skip
# fields of other Nemotron-H models, and those of Puzzle that llama.cpp's converter reads
_PUBLISHED = {
    "attention_bias": False, "attention_dropout": 0.0, "block_configs": [MAMBA, _experts(1280, 8), ATTENTION],
    "bos_token_id": 1, "chunk_size": 128, "conv_kernel": 4, "eos_token_id": 11, "expand": 2, "head_dim": 128,
    "hidden_dropout": 0.0, "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 5376,
    "layer_norm_epsilon": 1e-5, "mamba_head_dim": 64, "mamba_hidden_act": "silu", "mamba_num_heads": 128,
    "mamba_proj_bias": False, "mamba_ssm_cache_dtype": "float32", "max_position_embeddings": 262144,
    "mlp_bias": False, "mlp_hidden_act": "relu2", "moe_latent_size": 1024,
    "moe_shared_expert_intermediate_size": 5376, "mtp_block_configs": None, "n_group": 1, "n_groups": 8,
    "n_routed_experts": 512, "n_shared_experts": 1, "norm_topk_prob": True,
    "num_attention_heads": 32, "num_key_value_heads": 2, "num_logits_to_keep": 1, "num_nextn_predict_layers": 0,
    "pad_token_id": 0, "rescale_prenorm_residual": True, "residual_in_fp32": False,
    "rope_theta": 10000, "routed_scaling_factor": 5.0, "sliding_window": None, "ssm_state_size": 128,
    "tie_word_embeddings": False, "time_step_floor": 1e-4, "time_step_max": 0.1, "time_step_min": 0.001,
    "topk_group": 1, "use_bias": False, "use_cache": True, "use_conv_bias": True, "use_mamba_kernels": True,
    "vocab_size": 131072,
}  # fmt: skip
ROWS = FamilyRows(
    configs={
        "nemotron-h-puzzle": _SIZES,
        "nemotron-h-puzzle-mlp": {
            **_SIZES, "block_configs": [ATTENTION, _experts(64, 3), {"block_type": "mlp"}, _experts(32, 6), MAMBA],
            "intermediate_size": 224, "moe_latent_size": None, "norm_topk_prob": False, "tie_word_embeddings": True,
        },
    },
    repeated=("nemotron-h-puzzle-mlp",),
    twins={NAME: nemotron_h},
    published={NAME: _PUBLISHED},
    errors=(
        ("nemotron-h-puzzle", {"block_configs": [MAMBA, ATTENTION]}, CheckpointError, "a layer with experts"),
        ("nemotron-h-puzzle", {"block_configs": [_experts(32, 8)]}, CheckpointError, "num_experts_per_tok"),
        (
            "nemotron-h-puzzle", {"block_configs": [{**_experts(32, 2), "n_routed_experts": 5}]}, UnsupportedError,
            "n_routed_experts = 5",
        ),
        (
            "nemotron-h-puzzle", {"block_configs": [_experts(32, 2), {**MAMBA, "expand": 3}]}, UnsupportedError,
            r"block_configs\[1\]: expand = 3",
        ),
    ),
    converted={
        "nemotron-h-puzzle": {
            "n_group": 1, "topk_group": 1, "n_shared_experts": 1, "norm_topk_prob": True, "num_heads": 8,
            "norm_eps": 1e-5, "vocab_size": 2024,
        },
    },
    refused=("nemotron-h-puzzle-mlp",),
    loaded=("nemotron-h-puzzle",),
)  # fmt: skip
