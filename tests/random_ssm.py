"""Configs of models with Mamba layers in settings that are unpublished but run in transformers."""

from typing import Any

# all possible biases; bounds of step sizes that weights of random_checkpoints.py exceed
BIASED = {"mamba_proj_bias": True, "mamba_conv_bias": False, "attention_bias": True, "mlp_bias": True}
LIMITED = {"time_step_limit": [0.09, 0.4]}

SSM_CONFIGS: dict[str, dict[str, Any]] = {
    "mamba-biased": {
        "architectures": ["MambaForCausalLM"], "hidden_size": 72, "num_hidden_layers": 3, "expand": 2,
        "state_size": 7, "conv_kernel": 3, "time_step_rank": 5, "layer_norm_epsilon": 2e-4, "use_bias": True,
        "use_conv_bias": False,
    },
    "falcon-mamba-biased": {
        "architectures": ["FalconMambaForCausalLM"], "model_type": "falcon_mamba", "hidden_size": 56,
        "num_hidden_layers": 2, "expand": 2, "state_size": 6, "conv_kernel": 4, "time_step_rank": 9,
        "layer_norm_epsilon": 1e-5, "mixer_rms_eps": 3e-4, "use_bias": True, "use_conv_bias": False,
        "tie_word_embeddings": False,
    },
    "mamba2-biased": {
        "architectures": ["Mamba2ForCausalLM"], "model_type": "mamba2", "hidden_size": 72, "num_hidden_layers": 3,
        "expand": 2, "num_heads": 9, "head_dim": 16, "n_groups": 3, "state_size": 11, "conv_kernel": 3,
        "layer_norm_epsilon": 2e-4, "use_bias": True, "use_conv_bias": False, "tie_word_embeddings": False,
        "norm_before_gate": True, **LIMITED,
    },
    "jamba-biased": {
        "architectures": ["JambaForCausalLM"], "hidden_size": 72, "intermediate_size": 88, "num_hidden_layers": 4,
        "num_attention_heads": 6, "num_key_value_heads": 2, "attn_layer_period": 3, "attn_layer_offset": 1,
        "expert_layer_period": 2, "expert_layer_offset": 1, "num_experts": 5, "num_experts_per_tok": 2,
        "mamba_d_state": 7, "mamba_d_conv": 3, "mamba_expand": 2, "mamba_dt_rank": 9, "rms_norm_eps": 2e-4,
        "mamba_proj_bias": True, "mamba_conv_bias": False, "tie_word_embeddings": False,
    },
    "falcon-h1-biased": {
        "architectures": ["FalconH1ForCausalLM"], "hidden_size": 96, "intermediate_size": 136, "num_hidden_layers": 2,
        "num_attention_heads": 5, "num_key_value_heads": 1, "head_dim": 24, "mamba_d_ssm": 144, "mamba_n_heads": 9,
        "mamba_d_head": 16, "mamba_n_groups": 3, "mamba_d_state": 7, "mamba_d_conv": 3, "mamba_rms_norm": True,
        "mamba_norm_before_gate": True, "projectors_bias": True, "rms_norm_eps": 2e-4, "rope_theta": 1e5,
        "tie_word_embeddings": False, "key_multiplier": 0.6, "attention_in_multiplier": 1.1,
        "attention_out_multiplier": 0.9, "ssm_in_multiplier": 1.25, "ssm_out_multiplier": 0.7,
        "embedding_multiplier": 3.0, "lm_head_multiplier": 0.8, "mlp_multipliers": [0.9, 0.8],
        "ssm_multipliers": [0.8, 1.1, 0.7, 0.6, 1.3], **BIASED, **LIMITED,
    },
    "zamba-biased": {
        "architectures": ["ZambaForCausalLM"], "hidden_size": 80, "intermediate_size": 104, "num_hidden_layers": 5,
        "layers_block_type": ["mamba", "hybrid", "hybrid", "mamba", "hybrid"], "num_attention_heads": 5,
        "num_key_value_heads": 5, "mamba_expand": 2, "n_mamba_heads": 4, "mamba_d_state": 7, "mamba_d_conv": 4,
        "mamba_dt_rank": 9, "rms_norm_eps": 2e-4, "mamba_proj_bias": True, "mamba_conv_bias": False,
    },
    "zamba2-biased": {
        "architectures": ["Zamba2ForCausalLM"], "hidden_size": 80, "intermediate_size": 104, "num_hidden_layers": 5,
        "layers_block_type": ["mamba", "hybrid", "hybrid", "mamba", "hybrid"], "num_attention_heads": 5,
        "num_key_value_heads": 5, "mamba_expand": 2, "n_mamba_heads": 5, "mamba_headdim": 32, "mamba_ngroups": 1,
        "mamba_d_state": 11, "mamba_d_conv": 3, "num_mem_blocks": 1, "adapter_rank": 7, "rms_norm_eps": 4e-3,
        "add_bias_linear": True, "time_step_min": 0.12,
    },
    "bamba-biased": {
        "architectures": ["BambaForCausalLM"], "hidden_size": 96, "intermediate_size": 136, "num_hidden_layers": 3,
        "attn_layer_indices": [1], "num_attention_heads": 6, "num_key_value_heads": 2, "mamba_expand": 2,
        "mamba_n_heads": 12, "mamba_d_head": 16, "mamba_n_groups": 3, "mamba_d_state": 7, "mamba_d_conv": 3,
        "rms_norm_eps": 2e-4, "rope_theta": 1e4, "tie_word_embeddings": False, **BIASED, **LIMITED,
    },
    "granite-hybrid-biased": {
        "architectures": ["GraniteMoeHybridForCausalLM"], "hidden_size": 96, "intermediate_size": 56,
        "shared_intermediate_size": 72, "num_hidden_layers": 3, "layer_types": ["mamba", "attention", "mamba"],
        "num_attention_heads": 6, "num_key_value_heads": 2, "num_local_experts": 5, "num_experts_per_tok": 2,
        "position_embedding_type": "rope", "mamba_expand": 2, "mamba_n_heads": 12, "mamba_d_head": 16,
        "mamba_n_groups": 3, "mamba_d_state": 7, "mamba_d_conv": 3, "rms_norm_eps": 2e-4, "rope_theta": 1e4,
        "attention_multiplier": 0.2, "embedding_multiplier": 6.0, "residual_multiplier": 0.4, "logits_scaling": 3.0,
        "tie_word_embeddings": True, "mamba_proj_bias": True, "mamba_conv_bias": False, "attention_bias": True,
        **LIMITED,
    },
    # without position_embedding_type: no positions
    "granite-4-without-positions": {
        "architectures": ["GraniteMoeHybridForCausalLM"], "hidden_size": 96, "shared_intermediate_size": 136,
        "num_hidden_layers": 2, "layer_types": ["attention", "attention"], "num_attention_heads": 6,
        "num_key_value_heads": 2, "num_local_experts": 0, "rms_norm_eps": 1e-5, "attention_multiplier": 0.2,
        "embedding_multiplier": 6.0, "residual_multiplier": 0.4, "logits_scaling": 3.0, "tie_word_embeddings": True,
        "attention_bias": True, "mamba_n_heads": 12,
    },
}  # fmt: skip
