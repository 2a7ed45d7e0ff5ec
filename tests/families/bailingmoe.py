"""Ling 1."""

from typing import Any

from family_rows import FamilyRows
from reference.ling import ling

from hybrid.quant.ggml.errors import UnsupportedError

NAME = "BailingMoeForCausalLM"
_SIZES: dict[str, Any] = {
    "architectures": [NAME], "hidden_size": 96, "intermediate_size": 32, "num_hidden_layers": 3,
    "num_attention_heads": 6, "num_key_value_heads": 2, "num_experts": 8, "num_experts_per_tok": 3,
    "moe_intermediate_size": 32, "num_shared_experts": 2, "rope_theta": 6e5, "max_position_embeddings": 512,
}  # fmt: skip
_DEFAULTS = {
    "first_k_dense_replace": 0, "n_group": 1, "topk_group": 1, "routed_scaling_factor": 1.0, "rms_norm_eps": 1e-6,
}  # fmt: skip
# Ling-lite-1.5's
_PUBLISHED = {
    "attention_dropout": 0.0, "embedding_dropout": 0.0, "eos_token_id": 126081, "first_k_dense_replace": 0,
    "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.006, "intermediate_size": 1408,
    "max_position_embeddings": 32768, "moe_intermediate_size": 1408, "norm_head": False, "norm_softmax": False,
    "norm_topk_prob": True, "num_attention_heads": 16, "num_experts": 64, "num_experts_per_tok": 6,
    "num_hidden_layers": 28, "num_key_value_heads": 4, "num_shared_experts": 2, "output_dropout": 0.0,
    "output_router_logits": False, "pad_token_id": 126081, "pretraining_tp": 1, "rms_norm_eps": 1e-6,
    "rope_scaling": None, "rope_theta": 600000, "tie_word_embeddings": False, "use_bias": False, "use_cache": True,
    "use_qkv_bias": False, "vocab_size": 126464,
}  # fmt: skip
ROWS = FamilyRows(
    configs={
        "bailingmoe": {**_SIZES, "rms_norm_eps": 1e-5},
        "bailingmoe-norm": {
            **_SIZES, "head_dim": 20, "num_shared_experts": 1, "norm_topk_prob": False, "norm_head": True,
        },
    },
    repeated=("bailingmoe-norm",),
    twins={NAME: ling},
    defaults={NAME: _DEFAULTS},
    published={NAME: _PUBLISHED},
    errors=(
        ("bailingmoe", {"score_function": "sigmoid"}, UnsupportedError, 'score_function = "sigmoid"'),
        ("bailingmoe-norm", {"tie_word_embeddings": True}, UnsupportedError, "norm_head = true"),
        ("bailingmoe", {"use_qkv_bias": True}, UnsupportedError, "use_qkv_bias = true"),
    ),
    notes=(("bailingmoe", {"tie_word_embeddings": True}, "an output matrix apart from the embedding"),),
    converted={"bailingmoe": {"first_k_dense_replace": 0, "norm_topk_prob": True}},
)  # fmt: skip
