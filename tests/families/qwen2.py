"""Qwen2 and Qwen3."""

from family_rows import FamilyRows
from reference.llama import llama

ROWS = FamilyRows(
    configs={
        "qwen2": {
            "architectures": ["Qwen2ForCausalLM"], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 2,
            "num_attention_heads": 6, "num_key_value_heads": 2, "rms_norm_eps": 1e-6, "rope_theta": 1e6,
            "sliding_window": 7, "use_sliding_window": False, "tie_word_embeddings": True,
        },
        "qwen2-window": {
            "architectures": ["Qwen2ForCausalLM"], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 3,
            "num_attention_heads": 6, "num_key_value_heads": 2, "rms_norm_eps": 1e-6, "rope_theta": 1e6,
            "sliding_window": 7, "use_sliding_window": True, "max_window_layers": 1, "tie_word_embeddings": True,
        },
        "qwen2-yarn": {  # every setting is explicit, in the older spelling
            "architectures": ["Qwen2ForCausalLM"], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 2,
            "num_attention_heads": 6, "num_key_value_heads": 2, "rms_norm_eps": 1e-6, "rope_theta": 300.0,
            "rope_scaling": {
                "type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128, "beta_fast": 9.0,
                "beta_slow": 2.5, "truncate": False, "attention_factor": 1.3,
            },
            "tie_word_embeddings": True,
        },
        "qwen3": {
            "architectures": ["Qwen3ForCausalLM"], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 2,
            "num_attention_heads": 5, "num_key_value_heads": 1, "head_dim": 24, "rms_norm_eps": 1e-6, "rope_theta": 1e6,
            "tie_word_embeddings": True,
        },
        "qwen3-window": {
            "architectures": ["Qwen3ForCausalLM"], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 3,
            "num_attention_heads": 5, "num_key_value_heads": 1, "head_dim": 24, "rms_norm_eps": 1e-6, "rope_theta": 1e6,
            "sliding_window": 10, "use_sliding_window": True, "max_window_layers": 3, "tie_word_embeddings": True,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        },
        "qwen3-yarn": {
            "architectures": ["Qwen3ForCausalLM"], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 2,
            "num_attention_heads": 5, "num_key_value_heads": 1, "head_dim": 24, "rms_norm_eps": 1e-6,
            "rope_parameters": {
                "rope_type": "yarn", "rope_theta": 300.0, "factor": 4.0, "original_max_position_embeddings": 128,
            },
            "tie_word_embeddings": True,
        },
        "qwen3moe-mixed": {
            "architectures": ["Qwen3MoeForCausalLM"], "hidden_size": 96, "intermediate_size": 160,
            "num_hidden_layers": 3, "num_attention_heads": 5, "num_key_value_heads": 1, "head_dim": 24,
            "rms_norm_eps": 1e-5, "rope_theta": 1e5, "num_local_experts": 6, "num_experts_per_tok": 3,
            "moe_intermediate_size": 64, "norm_topk_prob": False, "mlp_only_layers": [1], "attention_bias": True,
            "tie_word_embeddings": False,
        },
        "qwen3moe": {
            "architectures": ["Qwen3MoeForCausalLM"], "hidden_size": 96, "intermediate_size": 160,
            "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
            "rms_norm_eps": 1e-6, "rope_theta": 1e6, "num_experts": 5, "num_experts_per_tok": 2,
            "moe_intermediate_size": 64, "norm_topk_prob": True, "tie_word_embeddings": False,
        },
        "qwen3moe-window": {
            "architectures": ["Qwen3MoeForCausalLM"], "hidden_size": 96, "intermediate_size": 160,
            "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
            "rms_norm_eps": 1e-6, "rope_theta": 1e6, "num_experts": 5, "num_experts_per_tok": 2,
            "moe_intermediate_size": 64, "norm_topk_prob": True, "sliding_window": 12, "use_sliding_window": True,
            "tie_word_embeddings": False,
        },
    },
    twins={"Qwen2ForCausalLM": llama, "Qwen3ForCausalLM": llama, "Qwen3MoeForCausalLM": llama},
    model_types={"Qwen2ForCausalLM": "qwen2", "Qwen3ForCausalLM": "qwen3", "Qwen3MoeForCausalLM": "qwen3_moe"},
)  # fmt: skip
