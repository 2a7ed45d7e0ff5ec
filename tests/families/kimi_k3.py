"""Kimi K3."""

from family_rows import Config, FamilyRows
from reference.kimi_k3 import kimi_k3

NAME = "KimiK3ForConditionalGeneration"
_K3: Config = {
    "architectures": [NAME], "hidden_act": "situ", "mla_use_nope": True, "num_experts": 12,
    "num_experts_per_token": 3, "moe_intermediate_size": 64,
}  # fmt: skip
_LINEAR: Config = {
    "full_attn_layers": [2, 5], "kda_layers": [1, 3, 4], "head_dim": 24, "num_heads": 3, "short_conv_kernel_size": 3,
    "use_full_rank_gate": True, "gate_lower_bound": -3.5,
}  # fmt: skip
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
)  # fmt: skip
