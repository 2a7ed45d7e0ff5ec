"""Configs of models with lightning attention, in both spellings, of PLaMo 2, and of Qwen3.8-Flash-Next: for
random_checkpoints.py."""

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
    # transformers has no class for it; RoPE rotates half of a head, as in the published models
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
    # as published, except sizes: llama.cpp computes the same in texts of up to the window's 512 tokens
    "plamo2-full": {
        "architectures": ["Plamo2ForCausalLM"], "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4,
        "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size_per_head": 32, "attention_window_size": 512,
        "mamba_d_state": 16, "mamba_d_conv": 4, "mamba_num_heads": 3, "mamba_step": 3, "rms_norm_eps": 1e-6,
        "rope_theta": 1e6, "tie_word_embeddings": False,
    },
    "qwen4exp": {
        "architectures": ["Qwen4ExpForCausalLM"], "hidden_size": 72, "num_hidden_layers": 4,
        "layer_types": ["linear_attention", "indexed_attention", "linear_attention", "indexed_attention"],
        "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 20, "linear_num_key_heads": 2,
        "linear_num_value_heads": 6, "linear_key_head_dim": 12, "linear_value_head_dim": 20,
        "linear_conv_kernel_dim": 3, "num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 24,
        "shared_expert_intermediate_size": 40, "norm_topk_prob": False, "rms_norm_eps": 2e-4, "hc_count": 3,
        "hc_lowrank": 13, "indexer_n_heads": 11, "indexer_kv_heads": 1, "indexer_head_dim": 14, "indexer_budget": 9,
        "indexer_compress_ratio": 3, "ple_layer_ids": [3], "ple_embed_dim": 90, "ple_conv_kernel_size": 3,
        "ngram_size": 4, "heads_per_ngram": 2, "ngram_vocab_size_base": 37, "make_ngram_vocab_size_divisible_by": 11,
        "split_ngram_parts": 4, "seed": 99, "eos_token_id": [1763, 7],
        "rope_parameters": {
            "rope_type": "default", "rope_theta": 3e4, "partial_rotary_factor": 0.6, "mrope_section": [3, 2, 1],
        },
    },
    "qwen4exp-plain": {
        "architectures": ["Qwen4ExpForCausalLM"], "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 3,
        "num_key_value_heads": 1, "head_dim": 24, "attention_bias": True, "linear_num_key_heads": 4,
        "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 16, "num_experts": 4,
        "num_experts_per_tok": 3, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 32,
        "rms_norm_eps": 1e-5, "hc_count": 2, "hc_lowrank": 10, "indexer_n_heads": 13, "indexer_kv_heads": 1,
        "indexer_head_dim": 32, "indexer_budget": 10, "indexer_compress_ratio": 1, "output_gate_type": "sigmoid",
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 1.0},
        "tie_word_embeddings": True,
    },
}  # fmt: skip
