"""Configs of models with experts, and of layers with biases beside them, with settings that are rare in published
models: for random_checkpoints.py."""

from typing import Any

EXPERT_CONFIGS: dict[str, dict[str, Any]] = {
    "nemotron-h-moe-groups": {
        "architectures": ["NemotronHForCausalLM"], "hidden_size": 96, "intermediate_size": 224,
        "layers_block_type": ["linear_attention", "moe", "full_attention", "mlp", "moe"], "num_attention_heads": 3,
        "num_key_value_heads": 1, "head_dim": 32, "mamba_num_heads": 6, "mamba_head_dim": 16, "ssm_state_size": 12,
        "n_groups": 3, "conv_kernel": 3, "layer_norm_epsilon": 3e-4, "mlp_bias": True, "use_bias": True,
        "use_conv_bias": False, "tie_word_embeddings": False, "n_routed_experts": 12,
        "num_experts_per_tok": 5, "n_group": 4, "topk_group": 2, "moe_intermediate_size": 32,
        "n_shared_experts": 2, "moe_shared_expert_intermediate_size": 160, "moe_latent_size": 64,
        "norm_topk_prob": False, "routed_scaling_factor": 1.7,
    },
    "qwen3moe-mixed": {
        "architectures": ["Qwen3MoeForCausalLM"], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 3,
        "num_attention_heads": 5, "num_key_value_heads": 1, "head_dim": 24, "rms_norm_eps": 1e-5, "rope_theta": 1e5,
        "num_local_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 64, "norm_topk_prob": False,
        "mlp_only_layers": [1], "attention_bias": True, "tie_word_embeddings": False,
    },
    "olmoe-normed": {
        "architectures": ["OlmoeForCausalLM"], "hidden_size": 96, "intermediate_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 6, "num_key_value_heads": 2, "rms_norm_eps": 2e-4, "rope_theta": 1e4,
        "num_experts": 7, "num_experts_per_tok": 3, "norm_topk_prob": True, "attention_bias": True,
        "clip_qkv": 1.25, "tie_word_embeddings": False,
    },
    "qwen3next-biased": {
        "architectures": ["Qwen3NextForCausalLM"], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 3,
        "layer_types": ["full_attention", "linear_attention", "full_attention"], "num_attention_heads": 2,
        "num_key_value_heads": 1, "head_dim": 40, "partial_rotary_factor": 0.5, "linear_num_key_heads": 2,
        "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 16,
        "linear_conv_kernel_dim": 3, "num_experts": 7, "num_experts_per_tok": 3, "moe_intermediate_size": 32,
        "shared_expert_intermediate_size": 64, "mlp_only_layers": [1], "norm_topk_prob": False, "attention_bias": True,
        "rms_norm_eps": 1e-5, "rope_theta": 1e5, "tie_word_embeddings": False,
    },
    "olmo-hybrid-biased": {
        "architectures": ["OlmoHybridForCausalLM"], "hidden_size": 64, "intermediate_size": 96,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "rms_norm_eps": 1e-5,
        "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 24,
        "rope_theta": 1e4, "attention_bias": True, "tie_word_embeddings": False,
    },
    "gpt-oss-rounded": {  # YaRN's bounds are rounded to whole pairs, as in llama.cpp
        "architectures": ["GptOssForCausalLM"], "hidden_size": 96, "intermediate_size": 64, "num_hidden_layers": 3,
        "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 24, "rms_norm_eps": 2e-4,
        "num_local_experts": 7, "num_experts_per_tok": 3, "sliding_window": 11, "rope_theta": 300.0,
        "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "truncate": True,
                         "beta_fast": 32.0, "beta_slow": 1.0},
        "tie_word_embeddings": False,
    },
    "gpt-oss-window": {  # other layers, limits that are reached, YaRN's bounds between pairs, no attention biases
        "architectures": ["GptOssForCausalLM"], "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3,
        "num_attention_heads": 5, "num_key_value_heads": 1, "head_dim": 40, "rms_norm_eps": 1e-5,
        "num_local_experts": 5, "num_experts_per_tok": 2, "sliding_window": 9, "attention_bias": False,
        "layer_types": ["full_attention", "sliding_attention", "sliding_attention"], "swiglu_limit": 0.6,
        "swiglu_alpha": 1.3,
        "rope_parameters": {"rope_type": "yarn", "rope_theta": 300.0, "factor": 4.0, "truncate": False,
                            "original_max_position_embeddings": 128, "beta_fast": 9.0, "beta_slow": 2.5},
        "tie_word_embeddings": False,
    },
    "llama4": {  # chunks and scales that no small text reaches, like Maverick except for the norms
        "architectures": ["Llama4ForCausalLM"], "hidden_size": 64, "intermediate_size": 32,
        "intermediate_size_mlp": 96, "num_hidden_layers": 5, "num_attention_heads": 5, "num_key_value_heads": 1,
        "head_dim": 24, "rms_norm_eps": 1e-5, "num_local_experts": 3, "interleave_moe_layer_step": 2,
    },
    "llama4-window": {  # chunks; experts on every second layer, one for each token
        "architectures": ["Llama4ForCausalLM"], "hidden_size": 96, "intermediate_size": 64,
        "intermediate_size_mlp": 160, "num_hidden_layers": 5, "num_attention_heads": 6, "num_key_value_heads": 2,
        "head_dim": 20, "rms_norm_eps": 1e-5, "num_local_experts": 5, "interleave_moe_layer_step": 2,
        "attention_chunk_size": 11, "floor_scale": 8, "attn_scale": 0.3,
        "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 1.0,
                         "original_max_position_embeddings": 30},
    },
    "llama4-order": {  # other layers than usual have RoPE, chunks and experts; no norms of queries and keys
        "architectures": ["Llama4ForCausalLM"], "hidden_size": 64, "intermediate_size": 32,
        "intermediate_size_mlp": 96, "num_hidden_layers": 4, "num_attention_heads": 3, "num_key_value_heads": 1,
        "head_dim": 24, "rms_norm_eps": 3e-4, "rope_theta": 1e4, "num_local_experts": 7, "num_experts_per_tok": 3,
        "moe_layers": [0, 1, 3], "no_rope_layers": [0, 1, 1, 0], "use_qk_norm": False, "attention_chunk_size": 9,
        "layer_types": ["chunked_attention", "full_attention", "chunked_attention", "full_attention"],
        "floor_scale": 5, "attn_scale": 0.2, "tie_word_embeddings": True,
    },
    "lfm2moe-scaled": {
        "architectures": ["Lfm2MoeForCausalLM"], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 4,
        "layer_types": ["conv", "full_attention", "conv", "conv"], "num_attention_heads": 3, "num_key_value_heads": 1,
        "conv_L_cache": 3, "conv_bias": True, "norm_eps": 1e-5, "rope_theta": 1e5, "num_dense_layers": 1,
        "num_experts": 7, "num_experts_per_tok": 3, "moe_intermediate_size": 64, "use_expert_bias": False,
        "norm_topk_prob": False, "routed_scaling_factor": 1.6,
    },
}  # fmt: skip
