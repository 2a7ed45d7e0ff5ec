"""Configs of plain transformers, which differ from Llama in a few settings: for random_checkpoints.py."""

from typing import Any

from families import listed

# Known layers with other settings: tests of layers need only one model of each family.
REPEATED = (
    "olmo3-order", "qwen2moe-window", "seed-oss-biased", "exaone4-window", "ernie4_5-biased", "ernie4_5-moe-order",
    "cohere2-order", "dots1-groups", "glm4-moe-plain", "hunyuan-moe-alpha",
    "apertus-biased", "phimoe-window", "arcee-biased", "nemotron-biased",
    "mixtral-window", *listed("repeated"),
)  # fmt: skip

PLAIN: dict[str, dict[str, Any]] = {
    "olmo3": {
        "architectures": ["Olmo3ForCausalLM"], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 5,
        "num_attention_heads": 6, "num_key_value_heads": 2, "rms_norm_eps": 1e-6, "sliding_window": 11,
        "rope_theta": 5e5, "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
        "tie_word_embeddings": False,
    },
    "olmo3-order": {
        "architectures": ["Olmo3ForCausalLM"], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 3,
        "num_attention_heads": 3, "num_key_value_heads": 3, "rms_norm_eps": 1e-5, "sliding_window": 9, "head_dim": 32,
        "layer_types": ["full_attention", "sliding_attention", "full_attention"],
        "rope_scaling": {"rope_type": "linear", "factor": 3.0}, "rope_theta": 2e5,  # of layers without a window
    },
    "qwen2moe": {
        "architectures": ["Qwen2MoeForCausalLM"], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 2,
        "num_attention_heads": 6, "num_key_value_heads": 2, "rms_norm_eps": 1e-6, "rope_theta": 1e6,
        "num_experts": 7, "num_experts_per_tok": 3, "moe_intermediate_size": 64,
        "shared_expert_intermediate_size": 128, "tie_word_embeddings": False,
    },
    "qwen2moe-window": {
        "architectures": ["Qwen2MoeForCausalLM"], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 4,
        "num_attention_heads": 3, "num_key_value_heads": 1, "rms_norm_eps": 1e-5, "rope_theta": 1e5,
        "num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "norm_topk_prob": True,
        "shared_expert_intermediate_size": 96, "mlp_only_layers": [1], "qkv_bias": False, "use_sliding_window": True,
        "sliding_window": 9, "max_window_layers": 3, "tie_word_embeddings": False,
    },
    "glm4": {
        "architectures": ["Glm4ForCausalLM"], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 2,
        "num_attention_heads": 5, "num_key_value_heads": 1, "head_dim": 28, "rms_norm_eps": 1e-5,
        "attention_bias": True, "tie_word_embeddings": False,
    },
    "seed-oss": {
        "architectures": ["SeedOssForCausalLM"], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 2,
        "num_attention_heads": 5, "num_key_value_heads": 1, "head_dim": 24, "rms_norm_eps": 1e-6, "rope_theta": 1e7,
        "tie_word_embeddings": False,
    },
    "seed-oss-biased": {
        "architectures": ["SeedOssForCausalLM"], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 2,
        "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 16, "rms_norm_eps": 1e-5, "rope_theta": 1e5,
        "attention_bias": False, "attention_out_bias": True, "mlp_bias": True, "tie_word_embeddings": True,
    },
    "exaone4": {
        "architectures": ["Exaone4ForCausalLM"], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 2,
        "num_attention_heads": 6, "num_key_value_heads": 2, "rms_norm_eps": 1e-5, "rope_theta": 1e6,
        "sliding_window": None, "layer_types": ["full_attention"] * 2, "tie_word_embeddings": True,
    },
    "exaone4-window": {
        "architectures": ["Exaone4ForCausalLM"], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 5,
        "num_attention_heads": 5, "num_key_value_heads": 1, "head_dim": 24, "rms_norm_eps": 1e-6, "rope_theta": 1e5,
        "rope_scaling": {"rope_type": "linear", "factor": 2.5}, "sliding_window": 9, "sliding_window_pattern": 3,
        "tie_word_embeddings": False,
    },
    "ernie4_5": {
        "architectures": ["Ernie4_5ForCausalLM"], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 2,
        "num_attention_heads": 5, "num_key_value_heads": 1, "head_dim": 24, "rms_norm_eps": 1e-5, "rope_theta": 5e5,
    },
    "ernie4_5-biased": {
        "architectures": ["Ernie4_5ForCausalLM"], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 2,
        "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 16, "rms_norm_eps": 1e-6, "use_bias": True,
        "tie_word_embeddings": False,
    },
    "ernie4_5-moe": {
        "architectures": ["Ernie4_5_MoeForCausalLM"], "hidden_size": 96, "intermediate_size": 128,
        "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 2, "rms_norm_eps": 1e-5,
        "rope_theta": 5e5, "moe_num_experts": 7, "moe_k": 3, "moe_intermediate_size": 64, "moe_num_shared_experts": 1,
        "moe_layer_start_index": 1,
    },
    "ernie4_5-moe-order": {
        "architectures": ["Ernie4_5_MoeForCausalLM"], "hidden_size": 96, "intermediate_size": 160,
        "num_hidden_layers": 5, "num_attention_heads": 3, "num_key_value_heads": 1, "rms_norm_eps": 1e-6,
        "rope_theta": 1e5, "moe_num_experts": 5, "moe_k": 2, "moe_intermediate_size": 32, "moe_num_shared_experts": 0,
        "moe_layer_start_index": 0, "moe_layer_end_index": 3, "moe_layer_interval": 2, "tie_word_embeddings": False,
    },
    "cohere2": {
        "architectures": ["Cohere2ForCausalLM"], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 5,
        "num_attention_heads": 6, "num_key_value_heads": 2, "layer_norm_eps": 1e-5, "rope_theta": 5e4,
        "sliding_window": 11, "logit_scale": 0.25,
    },
    "cohere2-order": {
        "architectures": ["Cohere2ForCausalLM"], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 3,
        "num_attention_heads": 3, "num_key_value_heads": 1, "layer_norm_eps": 2e-4, "sliding_window": 9,
        "layer_types": ["full_attention", "sliding_attention", "full_attention"],
    },
    "stablelm": {
        "architectures": ["StableLmForCausalLM"], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 2,
        "num_attention_heads": 3, "num_key_value_heads": 1, "layer_norm_eps": 1e-5, "use_qkv_bias": True,
        "tie_word_embeddings": False,
    },
    "apertus": {
        "architectures": ["ApertusForCausalLM"], "hidden_size": 96, "intermediate_size": 200, "num_hidden_layers": 3,
        "num_attention_heads": 6, "num_key_value_heads": 2, "rms_norm_eps": 2e-5, "hidden_act": "xielu",
        "rope_parameters": {
            "rope_type": "llama3", "rope_theta": 5e4, "factor": 4.0, "original_max_position_embeddings": 64,
            "low_freq_factor": 1.0, "high_freq_factor": 3.0,
        },
        "tie_word_embeddings": False,
    },
    "apertus-biased": {
        "architectures": ["ApertusForCausalLM"], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 2,
        "num_attention_heads": 5, "num_key_value_heads": 1, "head_dim": 24, "rms_norm_eps": 1e-5,
        "attention_bias": True, "tie_word_embeddings": True,
    },
    "phimoe": {
        "architectures": ["PhiMoEForCausalLM"], "hidden_size": 96, "intermediate_size": 64, "num_hidden_layers": 3,
        "num_attention_heads": 6, "num_key_value_heads": 2, "rms_norm_eps": 2e-5, "rope_theta": 1e4,
        "num_local_experts": 7, "num_experts_per_tok": 2, "router_jitter_noise": 0.3, "sliding_window": 512,
        "attention_bias": True, "lm_head_bias": True,
        "rope_scaling": {
            "type": "longrope", "short_factor": [1.0, 1.1, 1.3, 1.6, 2.0, 2.5, 3.0, 4.0], "short_mscale": 1.2,
            "long_factor": [1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0], "long_mscale": 1.2,
            "original_max_position_embeddings": 64,
        },
        "tie_word_embeddings": False,
    },
    "phimoe-window": {
        "architectures": ["PhiMoEForCausalLM"], "hidden_size": 96, "intermediate_size": 32, "num_hidden_layers": 2,
        "num_attention_heads": 5, "num_key_value_heads": 1, "head_dim": 24, "rms_norm_eps": 1e-5, "sliding_window": 9,
        "num_local_experts": 5, "num_experts_per_tok": 2, "tie_word_embeddings": True,
    },
    "arcee": {
        "architectures": ["ArceeForCausalLM"], "hidden_size": 96, "intermediate_size": 200, "num_hidden_layers": 2,
        "num_attention_heads": 6, "num_key_value_heads": 2, "rms_norm_eps": 2e-5, "rope_theta": 3e4,
        "tie_word_embeddings": False,
    },
    "arcee-biased": {
        "architectures": ["ArceeForCausalLM"], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 2,
        "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 24, "rms_norm_eps": 1e-5, "mlp_bias": True,
        "attention_bias": True, "tie_word_embeddings": True,
        "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
    },
    "command-r": {
        "architectures": ["CohereForCausalLM"], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 3,
        "num_attention_heads": 6, "num_key_value_heads": 2, "layer_norm_eps": 2e-5, "rope_theta": 4e4,
        "logit_scale": 0.25,
    },
    "nemotron": {
        "architectures": ["NemotronForCausalLM"], "hidden_size": 96, "intermediate_size": 200, "num_hidden_layers": 3,
        "num_attention_heads": 6, "num_key_value_heads": 2, "norm_eps": 2e-5, "rope_theta": 3e4,
        "tie_word_embeddings": False,
    },
    "nemotron-biased": {
        "architectures": ["NemotronForCausalLM"], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 2,
        "num_attention_heads": 5, "num_key_value_heads": 1, "head_dim": 24, "norm_eps": 1e-5, "mlp_bias": True,
        "attention_bias": True, "partial_rotary_factor": 0.75, "tie_word_embeddings": True,
    },
    "mixtral": {
        "architectures": ["MixtralForCausalLM"], "hidden_size": 96, "intermediate_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 6, "num_key_value_heads": 2, "rms_norm_eps": 2e-5, "rope_theta": 1e5,
        "num_local_experts": 7, "num_experts_per_tok": 3, "sliding_window": None, "tie_word_embeddings": False,
    },
    "mixtral-window": {
        "architectures": ["MixtralForCausalLM"], "hidden_size": 96, "intermediate_size": 32, "num_hidden_layers": 2,
        "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 24, "rms_norm_eps": 1e-5, "rope_theta": 1e4,
        "num_local_experts": 5, "num_experts_per_tok": 2, "sliding_window": 9, "tie_word_embeddings": True,
    },
    "gemma": {
        "architectures": ["GemmaForCausalLM"], "hidden_size": 96, "intermediate_size": 200, "num_hidden_layers": 2,
        "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 40, "rms_norm_eps": 2e-5, "hidden_act": "gelu",
    },
    "dots1": {
        "architectures": ["Dots1ForCausalLM"], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 3,
        "num_attention_heads": 5, "num_key_value_heads": 5, "head_dim": 24, "rms_norm_eps": 1e-5, "rope_theta": 1e5,
        "n_routed_experts": 7, "num_experts_per_tok": 3, "moe_intermediate_size": 64, "n_shared_experts": 2,
        "first_k_dense_replace": 1, "norm_topk_prob": True, "routed_scaling_factor": 2.5, "sliding_window": None,
        "tie_word_embeddings": False,
    },
    "dots1-groups": {
        "architectures": ["Dots1ForCausalLM"], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 3,
        "num_attention_heads": 6, "num_key_value_heads": 2, "rms_norm_eps": 1e-6, "rope_theta": 1e4,
        "n_routed_experts": 12, "num_experts_per_tok": 5, "moe_intermediate_size": 32, "n_shared_experts": 1,
        "n_group": 4, "topk_group": 2, "routed_scaling_factor": 1.5, "sliding_window": 9, "max_window_layers": 1,
        "tie_word_embeddings": False,
    },
    "glm4-moe": {
        "architectures": ["Glm4MoeForCausalLM"], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 3,
        "num_attention_heads": 5, "num_key_value_heads": 1, "head_dim": 28, "rms_norm_eps": 1e-5, "rope_theta": 1e6,
        "n_routed_experts": 7, "num_experts_per_tok": 3, "moe_intermediate_size": 64, "n_shared_experts": 1,
        "first_k_dense_replace": 1, "routed_scaling_factor": 1.5, "attention_bias": True, "use_qk_norm": True,
        "num_nextn_predict_layers": 1, "tie_word_embeddings": False,
    },
    "hunyuan": {
        "architectures": ["HunYuanDenseV1ForCausalLM"], "hidden_size": 96, "intermediate_size": 160,
        "num_hidden_layers": 2, "num_attention_heads": 5, "num_key_value_heads": 1, "head_dim": 24,
        "rms_norm_eps": 1e-5, "rope_theta": 1e4, "rope_scaling": {"type": "dynamic", "alpha": 50.0, "factor": 1.0},
        "max_position_embeddings": 32768, "tie_word_embeddings": True,
    },
    "hunyuan-moe": {
        "architectures": ["HunYuanMoEV1ForCausalLM"], "hidden_size": 96, "intermediate_size": 64,
        "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 16,
        "rms_norm_eps": 1e-5, "rope_theta": 1e5, "num_experts": 7, "moe_topk": [3, 3], "num_shared_expert": [1, 1],
        "moe_intermediate_size": [64, 64], "tie_word_embeddings": True,
    },
    "hunyuan-moe-alpha": {
        "architectures": ["HunYuanMoEV1ForCausalLM"], "hidden_size": 96, "intermediate_size": 32,
        "num_hidden_layers": 2, "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 40,
        "rms_norm_eps": 1e-6, "rope_theta": 1e4, "rope_scaling": {"type": "dynamic", "alpha": 30.0, "factor": 1.0},
        "num_experts": 5, "moe_topk": 2, "attention_bias": True, "tie_word_embeddings": False,
    },
    "glm4-moe-plain": {
        "architectures": ["Glm4MoeForCausalLM"], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 2,
        "num_attention_heads": 6, "num_key_value_heads": 2, "rms_norm_eps": 1e-6, "partial_rotary_factor": 0.75,
        "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "n_shared_experts": 1,
        "first_k_dense_replace": 0, "norm_topk_prob": False, "tie_word_embeddings": True,
    },
}  # fmt: skip
