"""Configs of models with windowed attention on some layers, and with scaled RoPE: small and odd, as in
random_checkpoints.py."""

from typing import Any

WINDOWS: dict[str, dict[str, Any]] = {
    "mistral-window": {
        "architectures": ["MistralForCausalLM"], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 2,
        "num_attention_heads": 5, "num_key_value_heads": 1, "head_dim": 24, "rms_norm_eps": 1e-5, "rope_theta": 1e6,
        "sliding_window": 13, "tie_word_embeddings": False,
    },
    "phi3-window": {
        "architectures": ["Phi3ForCausalLM"], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "rms_norm_eps": 1e-5, "rope_theta": 1e4,
        "sliding_window": 9, "tie_word_embeddings": False,
    },
    "starcoder2-window": {
        "architectures": ["Starcoder2ForCausalLM"], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 2,
        "num_attention_heads": 6, "num_key_value_heads": 2, "norm_epsilon": 1e-5, "rope_theta": 1e5, "use_bias": True,
        "hidden_act": "gelu_pytorch_tanh", "sliding_window": 11, "rope_scaling": {"type": "linear", "factor": 2.5},
    },
    "qwen2-window": {
        "architectures": ["Qwen2ForCausalLM"], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 3,
        "num_attention_heads": 6, "num_key_value_heads": 2, "rms_norm_eps": 1e-6, "rope_theta": 1e6,
        "sliding_window": 7, "use_sliding_window": True, "max_window_layers": 1, "tie_word_embeddings": True,
    },
    "qwen3-window": {
        "architectures": ["Qwen3ForCausalLM"], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 3,
        "num_attention_heads": 5, "num_key_value_heads": 1, "head_dim": 24, "rms_norm_eps": 1e-6, "rope_theta": 1e6,
        "sliding_window": 10, "use_sliding_window": True, "max_window_layers": 3, "tie_word_embeddings": True,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    },
    "qwen3moe-window": {
        "architectures": ["Qwen3MoeForCausalLM"], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "rms_norm_eps": 1e-6, "rope_theta": 1e6,
        "num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 64, "norm_topk_prob": True,
        "sliding_window": 12, "use_sliding_window": True, "tie_word_embeddings": False,
    },
    "smollm3-window": {  # other layers without RoPE than usual; the usual base
        "architectures": ["SmolLM3ForCausalLM"], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 3,
        "num_attention_heads": 5, "num_key_value_heads": 1, "head_dim": 24, "rms_norm_eps": 1e-5,
        "no_rope_layers": [0, 1, 0], "sliding_window": 10, "use_sliding_window": True, "tie_word_embeddings": False,
    },
    "gemma2-order": {
        "architectures": ["Gemma2ForCausalLM"], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 3,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "rms_norm_eps": 1e-6, "sliding_window": 11,
        "query_pre_attn_scalar": 32, "rope_scaling": {"rope_type": "linear", "factor": 3.0},
        "layer_types": ["full_attention", "sliding_attention", "sliding_attention"],
    },
    "gemma3-order": {
        "architectures": ["Gemma3ForCausalLM"], "hidden_size": 96, "intermediate_size": 64, "num_hidden_layers": 5,
        "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 32, "rms_norm_eps": 1e-6, "sliding_window": 11,
        "query_pre_attn_scalar": 32,
        "layer_types": ["full_attention", *["sliding_attention"] * 2, "full_attention", "sliding_attention"],
        "rope_parameters": {
            "full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 5e5},
            "sliding_attention": {"rope_type": "default", "rope_theta": 2e4},
        },
    },
    "gemma3-period": {
        "architectures": ["Gemma3ForCausalLM"], "hidden_size": 96, "intermediate_size": 64, "num_hidden_layers": 4,
        "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 32, "rms_norm_eps": 1e-6, "sliding_window": 9,
        "query_pre_attn_scalar": 32, "sliding_window_pattern": 3,
    },
}  # fmt: skip

# 9 pairs: RoPE rotates 18 values of heads of 24.
LONGROPE = {
    "short_factor": [1.0, 1.02, 1.05, 1.1, 1.2, 1.35, 1.5, 1.6, 1.8],
    "long_factor": [1.1, 1.4, 2.0, 3.1, 4.7, 7.0, 9.5, 14.0, 21.0],
}
STRETCHED: dict[str, dict[str, Any]] = {
    # the long factors apply from 25 tokens of text or context on; in the next config from 301 on
    "phi3-longrope": {
        "architectures": ["Phi3ForCausalLM"], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "rms_norm_eps": 1e-5, "rope_theta": 1e4,
        "original_max_position_embeddings": 24, "partial_rotary_factor": 0.75, "tie_word_embeddings": False,
        "rope_scaling": {"type": "longrope", **LONGROPE},
    },
    "phi3-shortrope": {
        "architectures": ["Phi3ForCausalLM"], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "rms_norm_eps": 1e-5, "sliding_window": 31,
        "original_max_position_embeddings": 300, "tie_word_embeddings": False,
        "rope_parameters": {"rope_type": "longrope", "rope_theta": 1e4, "partial_rotary_factor": 0.75, **LONGROPE},
    },
    "qwen3-yarn": {
        "architectures": ["Qwen3ForCausalLM"], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 2,
        "num_attention_heads": 5, "num_key_value_heads": 1, "head_dim": 24, "rms_norm_eps": 1e-6,
        "rope_parameters": {"rope_type": "yarn", "rope_theta": 300.0, "factor": 4.0,
                            "original_max_position_embeddings": 128},
        "tie_word_embeddings": True,
    },
    "ministral3": {
        "architectures": ["Ministral3ForCausalLM"], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 2,
        "num_attention_heads": 5, "num_key_value_heads": 1, "head_dim": 24, "rms_norm_eps": 1e-5,
        "rope_parameters": {"rope_type": "yarn", "rope_theta": 300.0, "factor": 4.0, "beta_fast": 9.0, "beta_slow": 2.5,
                            "original_max_position_embeddings": 16, "mscale": 1.0, "mscale_all_dim": 0.6,
                            "llama_4_scaling_beta": 0.4},
        "tie_word_embeddings": False,
    },
    "ministral3-window": {
        "architectures": ["Ministral3ForCausalLM"], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "rms_norm_eps": 1e-5, "sliding_window": 13,
        "rope_parameters": {"rope_type": "yarn", "rope_theta": 500.0, "factor": 4.0, "truncate": False, "mscale": 1.4,
                            "original_max_position_embeddings": 24, "mscale_all_dim": 0.6,
                            "llama_4_scaling_beta": 0.1},
        "tie_word_embeddings": True,
    },
    "qwen2-yarn": {  # every setting is explicit, in the older spelling
        "architectures": ["Qwen2ForCausalLM"], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 2,
        "num_attention_heads": 6, "num_key_value_heads": 2, "rms_norm_eps": 1e-6, "rope_theta": 300.0,
        "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128, "beta_fast": 9.0,
                         "beta_slow": 2.5, "truncate": False, "attention_factor": 1.3},
        "tie_word_embeddings": True,
    },
    "lfm3-yarn": {
        "architectures": ["Lfm3ForCausalLM"], "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3,
        "layer_types": ["sliding_attention", "full_attention", "conv"], "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 24, "sliding_window": 11, "conv_L_cache": 4, "norm_eps": 1e-5,
        "rope_parameters": {
            "full_attention": {"rope_type": "yarn", "rope_theta": 300.0, "factor": 4.0, "beta_fast": 9.0,
                               "original_max_position_embeddings": 128},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e3},
        },
    },
    "zaya-yarn": {
        "architectures": ["ZayaForCausalLM"], "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 2,
        "num_key_value_heads": 1, "head_dim": 24, "moe_intermediate_size": 32, "num_experts": 3,
        "router_hidden_size": 16, "sliding_window": 11, "rms_norm_eps": 1e-5,
        "layer_types": ["hybrid_sliding", "hybrid", "hybrid"],
        "rope_parameters": {
            "hybrid": {"rope_type": "yarn", "rope_theta": 300.0, "factor": 4.0, "partial_rotary_factor": 0.5,
                       "original_max_position_embeddings": 128},
            "hybrid_sliding": {"rope_type": "default", "rope_theta": 1e3, "partial_rotary_factor": 1.0},
        },
    },
    "gptneox-yarn": {
        "architectures": ["GPTNeoXForCausalLM"], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 2,
        "num_attention_heads": 3, "rotary_pct": 0.75, "rotary_emb_base": 300, "hidden_act": "gelu_fast",
        "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128},
    },
    "falcon-yarn": {
        "architectures": ["FalconForCausalLM"], "hidden_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
        "rope_parameters": {"rope_type": "yarn", "rope_theta": 300.0, "factor": 4.0, "attention_factor": 1.3,
                            "original_max_position_embeddings": 128},
    },
    "llama-yarn": {
        "architectures": ["LlamaForCausalLM"], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 2,
        "num_attention_heads": 3, "num_key_value_heads": 1, "rms_norm_eps": 1e-5, "rope_theta": 500.0,
        "rope_scaling": {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 64, "mscale": 1.4,
                         "mscale_all_dim": 0.6},
        "tie_word_embeddings": False,
    },
}  # fmt: skip
