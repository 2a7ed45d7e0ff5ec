"""Qwen3-Next."""

from family_rows import FamilyRows
from reference.qwen3_next import qwen3_next

NAME = "Qwen3NextForCausalLM"
ROWS = FamilyRows(
    configs={
        "qwen3next-biased": {
            "architectures": [NAME], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 3,
            "layer_types": ["full_attention", "linear_attention", "full_attention"], "num_attention_heads": 2,
            "num_key_value_heads": 1, "head_dim": 40, "partial_rotary_factor": 0.5, "linear_num_key_heads": 2,
            "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 16,
            "linear_conv_kernel_dim": 3, "num_experts": 7, "num_experts_per_tok": 3, "moe_intermediate_size": 32,
            "shared_expert_intermediate_size": 64, "mlp_only_layers": [1], "norm_topk_prob": False,
            "attention_bias": True, "rms_norm_eps": 1e-5, "rope_theta": 1e5, "tie_word_embeddings": False,
        },
        "qwen3next": {
            "architectures": [NAME], "hidden_size": 96, "intermediate_size": 128, "num_hidden_layers": 4,
            "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 40, "partial_rotary_factor": 0.4,
            "linear_num_key_heads": 2, "linear_num_value_heads": 6, "linear_key_head_dim": 24,
            "linear_value_head_dim": 24, "linear_conv_kernel_dim": 4, "num_experts": 5, "num_experts_per_tok": 2,
            "moe_intermediate_size": 64, "shared_expert_intermediate_size": 96, "rms_norm_eps": 1e-6, "rope_theta": 1e6,
            "tie_word_embeddings": False,
        },
    },
    twins={NAME: qwen3_next},
    noise={"qwen3-next": 5.5e-5},
    model_types={NAME: "qwen3_next"},
    notes=(
        ("qwen3next", {"mlp_only_layers": [1]}, "all layers have experts"),
        ("qwen3next", {"linear_value_head_dim": 16}, "heads of keys and values have one size"),
    ),
    refused=("qwen3-next", "qwen3next-biased"),
    mlx={"qwen3_next": "qwen3next"},
    sizes={"qwen3-next-slice": 1.57},
    loaded=("qwen3next",),
)  # fmt: skip
