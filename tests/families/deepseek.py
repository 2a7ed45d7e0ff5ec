"""DeepSeekMoE, and the text models of DeepSeek-OCR and Aria."""

from functools import partial
from typing import Any

from family_rows import FamilyRows
from reference.plain import Switches, plain

from hybrid.quant.ggml.errors import UnsupportedError

NAME = "DeepseekForCausalLM"
_SIZES: dict[str, Any] = {
    "architectures": [NAME], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 3,
    "num_attention_heads": 6, "num_key_value_heads": 2, "n_routed_experts": 7, "num_experts_per_tok": 3,
    "moe_intermediate_size": 64, "rms_norm_eps": 1e-6, "rope_theta": 2e4,
}  # fmt: skip
ROWS = FamilyRows(
    configs={
        "deepseek": {
            **_SIZES, "n_shared_experts": 2, "first_k_dense_replace": 1, "norm_topk_prob": False,
            "tie_word_embeddings": False,
        },
        "deepseek-normed": {
            **_SIZES, "n_shared_experts": 1, "norm_topk_prob": True, "routed_scaling_factor": 1.7, "head_dim": 20,
            "attention_bias": True, "tie_word_embeddings": True,
        },
    },
    repeated=("deepseek-normed",),
    twins={NAME: partial(plain, s=Switches())},
    published={
        NAME: {
            "vocab_size": 102400, "hidden_size": 2048, "intermediate_size": 10944, "moe_intermediate_size": 1408,
            "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 16, "n_shared_experts": 2,
            "n_routed_experts": 64, "num_experts_per_tok": 6, "moe_layer_freq": 1, "first_k_dense_replace": 1,
            "norm_topk_prob": False, "scoring_func": "softmax", "aux_loss_alpha": 0.001, "seq_aux": True,
            "hidden_act": "silu", "max_position_embeddings": 4096, "initializer_range": 0.02, "rms_norm_eps": 1e-6,
            "use_cache": True, "pad_token_id": None, "bos_token_id": 100000, "eos_token_id": 100001,
            "pretraining_tp": 1, "tie_word_embeddings": False, "rope_theta": 10000, "rope_scaling": None,
            "attention_bias": False, "attention_dropout": 0.0, "routed_scaling_factor": 1.0,
            "mlp_layer_types": None, "topk_method": "greedy", "n_group": 1, "topk_group": 1, "head_dim": None,
            "mlp_bias": False, "torch_dtype": "bfloat16",
        },
    },
    examples={
        "deepseek-kinds": {**_SIZES, "n_shared_experts": 2, "mlp_layer_types": ["dense", "dense", "sparse"]},
    },
    errors=(
        ("deepseek", {"scoring_func": "sigmoid"}, UnsupportedError, 'scoring_func = "sigmoid"'),
        ("deepseek", {"moe_layer_freq": 2}, UnsupportedError, "moe_layer_freq = 2"),
        ("deepseek", {"n_group": 2}, UnsupportedError, "n_group = 2"),
    ),
    notes=(
        ("deepseek", {"norm_topk_prob": True}, "llama.cpp takes norm_topk_prob = false"),
        ("deepseek", {"attention_bias": True}, "what attention returns has no bias"),
    ),
    converted={"deepseek": {"scoring_func": "softmax"}},
    refused=("deepseek-normed",),
)  # fmt: skip
