"""Configs of models with lightning attention, in both spellings, and of PLaMo 2: for random_checkpoints.py."""

from typing import Any

RECURRENT_CONFIGS: dict[str, dict[str, Any]] = {
    "minimax-scaled": {
        "architectures": ["MiniMaxForCausalLM"], "hidden_size": 96, "intermediate_size": 64, "num_hidden_layers": 4,
        "layer_types": ["linear_attention", "full_attention", "linear_attention", "linear_attention"],
        "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 40, "num_local_experts": 5,
        "num_experts_per_tok": 2, "rms_norm_eps": 2e-4, "rope_theta": 1e5, "block_size": 7,
        "full_attn_alpha_factor": 1.7, "full_attn_beta_factor": 0.8, "linear_attn_alpha_factor": 1.3,
        "linear_attn_beta_factor": 1.2, "mlp_alpha_factor": 0.9, "mlp_beta_factor": 1.4,
    },
    "minimax-window": {
        "architectures": ["MiniMaxForCausalLM"], "hidden_size": 96, "intermediate_size": 32, "num_hidden_layers": 3,
        "num_attention_heads": 4, "num_key_value_heads": 2, "num_local_experts": 3, "num_experts_per_tok": 2,
        "sliding_window": 9, "rms_norm_eps": 1e-6, "tie_word_embeddings": True, "max_position_embeddings": 512,
        "rope_parameters": {"rope_type": "linear", "factor": 3.0, "rope_theta": 1e4},
    },
    # transformers has no class for it; half of a head turns, as in the published models
    "minimax-text-01": {
        "architectures": ["MiniMaxText01ForCausalLM"], "hidden_size": 96, "intermediate_size": 64,
        "num_hidden_layers": 9, "attn_type_list": [0, 0, 0, 0, 0, 0, 0, 1, 0], "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 24, "rotary_dim": 12, "num_local_experts": 3, "num_experts_per_tok": 2,
        "rms_norm_eps": 1e-5, "rope_theta": 1e7, "postnorm": True, "layernorm_full_attention_alpha": 3.5,
        "layernorm_full_attention_beta": 1.0, "layernorm_linear_attention_alpha": 3.5,
        "layernorm_linear_attention_beta": 1.0, "layernorm_mlp_alpha": 3.5, "layernorm_mlp_beta": 1.0,
        "shared_intermediate_size": 0, "tie_word_embeddings": False,
    },
    "plamo2": {
        "architectures": ["Plamo2ForCausalLM"], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 5,
        "num_attention_heads": 5, "num_key_value_heads": 1, "hidden_size_per_head": 24, "attention_window_size": 11,
        "full_attention_idx": [3], "mamba_d_state": 20, "mamba_d_conv": 3, "mamba_num_heads": 7, "mamba_step": 2,
        "rms_norm_eps": 3e-4, "tie_word_embeddings": True,
    },
    # as published, but for sizes: what llama.cpp computes, too, in texts of so many tokens
    "plamo2-full": {
        "architectures": ["Plamo2ForCausalLM"], "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4,
        "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size_per_head": 32, "attention_window_size": 512,
        "mamba_d_state": 16, "mamba_d_conv": 4, "mamba_num_heads": 3, "mamba_step": 3, "rms_norm_eps": 1e-6,
        "rope_theta": 1e6, "tie_word_embeddings": False,
    },
}  # fmt: skip
