"""Qwen3.5."""

from family_rows import Config, FamilyRows
from reference.qwen3_next import qwen3_next

_DELTA: Config = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 6,
    "linear_value_head_dim": 10,
    "linear_conv_kernel_dim": 3,
    "rms_norm_eps": 1e-6,
    "head_dim": 16,
}
ROWS = FamilyRows(
    configs={
        "qwen35": {
            "architectures": ["Qwen3_5ForCausalLM"], "hidden_size": 96, "intermediate_size": 160,
            "num_hidden_layers": 3, "layer_types": ["linear_attention", "full_attention", "linear_attention"],
            "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 32,
            "rope_parameters": {"mrope_section": [2, 1, 1]}, "linear_num_key_heads": 2, "linear_num_value_heads": 6,
            "linear_key_head_dim": 24, "linear_value_head_dim": 24, "linear_conv_kernel_dim": 3, "rms_norm_eps": 1e-6,
            "rope_theta": 1e6,
        },
        "qwen35moe": {
            "architectures": ["Qwen3_5MoeForCausalLM"], "hidden_size": 96, "num_hidden_layers": 4,
            "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "full_attention_interval": 2,
            "linear_num_key_heads": 4, "linear_num_value_heads": 4, "linear_key_head_dim": 16,
            "linear_value_head_dim": 16, "linear_conv_kernel_dim": 4, "num_experts": 5, "num_experts_per_tok": 2,
            "moe_intermediate_size": 64, "shared_expert_intermediate_size": 64, "rms_norm_eps": 1e-6, "rope_theta": 1e6,
            "tie_word_embeddings": False,
        },
    },
    twins={"Qwen3_5ForCausalLM": qwen3_next, "Qwen3_5MoeForCausalLM": qwen3_next},
    noise={"qwen3_5": 5.1e-5},
    examples={
        "qwen35-pictures": {
            "architectures": ["Qwen3_5ForConditionalGeneration"], "vision_config": {"depth": 7},
            "text_config": {
                "vocab_size": 40, "hidden_size": 24, "intermediate_size": 20, "num_hidden_layers": 4,
                "num_attention_heads": 3, "num_key_value_heads": 1, **_DELTA, "max_position_embeddings": 64,
                "rope_parameters": {"mrope_section": [2, 1, 1]},
            },
        },
        "qwen35moe-pictures": {
            "architectures": ["Qwen3_5MoeForConditionalGeneration"], "vision_config": {"depth": 7},
            "text_config": {
                "vocab_size": 40, "hidden_size": 24, "num_hidden_layers": 4, "num_attention_heads": 3,
                "num_key_value_heads": 1, **_DELTA, "num_experts": 3, "num_experts_per_tok": 2,
                "moe_intermediate_size": 10, "shared_expert_intermediate_size": 14, "max_position_embeddings": 64,
            },
        },
    },
    mlx={"qwen3_5": "qwen35", "qwen3_5_moe": "qwen35moe"},
    sizes={"qwen3.5-0.8b": 0.752},
    loaded=("qwen35",),
)  # fmt: skip
