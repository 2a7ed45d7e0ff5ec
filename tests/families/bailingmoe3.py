"""Ling 3."""

from family_rows import FamilyRows
from reference.kimi import ling

NAME = "BailingHybridForCausalLM"
ROWS = FamilyRows(
    configs={
        "bailing-hybrid": {
            "architectures": [NAME], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 4,
            "layer_group_size": 2, "first_k_dense_replace": 1, "num_attention_heads": 5, "num_key_value_heads": 5,
            "kv_lora_rank": 36, "qk_nope_head_dim": 20, "qk_rope_head_dim": 12, "v_head_dim": 28, "head_dim": 16,
            "short_conv_kernel_size": 3, "kda_lower_bound": -3.5, "num_experts": 12, "num_experts_per_token": 3,
            "moe_intermediate_size": 64, "num_shared_experts": 2, "num_expert_group": 4, "topk_group": 2,
            "routed_scaling_factor": 1.7, "rms_norm_eps": 1e-6, "rope_theta": 5e4, "tie_word_embeddings": False,
        },
    },
    twins={NAME: ling},
    model_types={NAME: "bailing_hybrid"},
    alike={"BailingMoeV3ForCausalLM": NAME},
)  # fmt: skip
