"""Kimi Linear."""

from family_rows import FamilyRows
from reference.kimi import kimi_linear

NAME = "KimiLinearForCausalLM"
ROWS = FamilyRows(
    configs={
        "kimi-linear": {
            "architectures": [NAME], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 4,
            "layer_types": ["linear_attention", "full_attention", "linear_attention", "full_attention"],
            "mlp_layer_types": ["dense", "sparse", "sparse", "sparse"], "num_attention_heads": 3,
            "num_key_value_heads": 3, "kv_lora_rank": 40, "qk_nope_head_dim": 20, "qk_rope_head_dim": 12,
            "v_head_dim": 24, "linear_num_heads": 3, "linear_head_dim": 24, "linear_conv_kernel_dim": 3,
            "num_experts": 8, "num_experts_per_token": 3, "moe_intermediate_size": 64, "num_shared_experts": 2,
            "num_expert_group": 4, "topk_group": 2, "routed_scaling_factor": 1.7, "rms_norm_eps": 1e-5,
            "tie_word_embeddings": False,
        },
        "kimi-linear-normed": {
            "architectures": [NAME], "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3,
            "layer_types": ["linear_attention", "full_attention", "full_attention"], "first_k_dense_replace": 3,
            "num_attention_heads": 5, "num_key_value_heads": 5, "q_lora_rank": 36, "kv_lora_rank": 33,
            "qk_nope_head_dim": 17, "qk_rope_head_dim": 0, "v_head_dim": 9, "linear_num_heads": 2, "linear_head_dim": 7,
            "linear_conv_kernel_dim": 4, "num_experts": 2, "num_experts_per_token": 1, "moe_intermediate_size": 32,
            "rms_norm_eps": 1e-6,
        },
    },
    twins={NAME: kimi_linear},
    model_types={NAME: "kimi_linear"},
)  # fmt: skip
