"""LFM2."""

from family_rows import FamilyRows
from reference.lfm2 import lfm2

ROWS = FamilyRows(
    configs={
        "lfm2": {
            "architectures": ["Lfm2ForCausalLM"], "hidden_size": 96, "intermediate_size": 200, "num_hidden_layers": 4,
            "block_multiple_of": 32, "layer_types": ["conv", "full_attention", "conv", "conv"],
            "num_attention_heads": 3, "num_key_value_heads": 1, "conv_L_cache": 3, "norm_eps": 1e-5, "rope_theta": 1e6,
        },
        "lfm2moe-scaled": {
            "architectures": ["Lfm2MoeForCausalLM"], "hidden_size": 96, "intermediate_size": 160,
            "num_hidden_layers": 4, "layer_types": ["conv", "full_attention", "conv", "conv"], "num_attention_heads": 3,
            "num_key_value_heads": 1, "conv_L_cache": 3, "conv_bias": True, "norm_eps": 1e-5, "rope_theta": 1e5,
            "num_dense_layers": 1, "num_experts": 7, "num_experts_per_tok": 3, "moe_intermediate_size": 64,
            "use_expert_bias": False, "norm_topk_prob": False, "routed_scaling_factor": 1.6,
        },
        "lfm2moe": {
            "architectures": ["Lfm2MoeForCausalLM"], "hidden_size": 96, "intermediate_size": 160,
            "num_hidden_layers": 3, "layer_types": ["conv", "full_attention", "conv"], "num_attention_heads": 6,
            "num_key_value_heads": 2, "conv_L_cache": 4, "norm_eps": 1e-5, "rope_theta": 1e6, "num_dense_layers": 1,
            "num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 64,
        },
    },
    twins={"Lfm2ForCausalLM": lfm2, "Lfm2MoeForCausalLM": lfm2},
    model_types={"Lfm2MoeForCausalLM": "lfm2_moe"},
)  # fmt: skip
