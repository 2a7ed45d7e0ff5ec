"""Configs of published models, with the fields that decide the sizes of tensors, for `bench --shape`."""

from typing import Any


def _every(n_layer: int, period: int, last: str, others: str) -> list[str]:
    """Layer kinds: every `period`th is `last`, the rest `others`."""
    return [last if i % period == period - 1 else others for i in range(n_layer)]


def _rwkv7(n_embd: int, n_layer: int, *ranks: int) -> dict[str, Any]:
    names = ("decay_low_rank_dim", "a_low_rank_dim", "v_low_rank_dim", "gate_low_rank_dim")
    return {
        "architectures": ["RWKV7ForCausalLM"],
        "hidden_size": n_embd,
        "num_hidden_layers": n_layer,
        "head_dim": 64,
        "vocab_size": 65536,
        "norm_eps": 1e-5,
        **dict(zip(names, ranks, strict=True)),
    }


def _kimi(n_layer: int, n_expert: int, attention: list[int]) -> dict[str, Any]:
    """Kimi-Linear-48B-A3B; attention: numbers of its attention layers, from 1."""
    return {
        "architectures": ["KimiLinearForCausalLM"], "hidden_size": 2304, "intermediate_size": 9216,
        "num_hidden_layers": n_layer, "num_attention_heads": 32, "num_key_value_heads": 32, "kv_lora_rank": 512,
        "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "first_k_dense_replace": 1,
        "linear_attn_config": {
            "full_attn_layers": attention, "head_dim": 128, "num_heads": 32, "short_conv_kernel_size": 4,
        },
        "num_experts": n_expert, "num_experts_per_token": 8, "moe_intermediate_size": 1024, "num_shared_experts": 1,
        "routed_scaling_factor": 2.446, "rms_norm_eps": 1e-5, "vocab_size": 163840, "model_max_length": 1048576,
    }  # fmt: skip


def _glm5(n_layer: int, n_expert: int, n_dense: int) -> dict[str, Any]:
    """GLM-5.3-Flash, its text model."""
    return {
        "architectures": ["Glm5NextForConditionalGeneration"], "hidden_size": 4096, "intermediate_size": 12288,
        "num_hidden_layers": n_layer, "num_attention_heads": 64, "q_lora_rank": 1536, "kv_lora_rank": 512,
        "qk_nope_head_dim": 256, "qk_rope_head_dim": 0, "v_head_dim": 256, "linear_num_heads": 64,
        "linear_head_dim": 128, "linear_conv_kernel_dim": 4, "n_routed_experts": n_expert, "num_experts_per_tok": 8,
        "moe_intermediate_size": 2048, "mlp_layer_types": [*["dense"] * n_dense, *["sparse"] * (n_layer - n_dense)],
        "vocab_size": 154880, "max_position_embeddings": 1048576,
    }  # fmt: skip


def _deepseek4(n_layer: int, n_expert: int) -> dict[str, Any]:
    """DeepSeek-V4-Flash: two layers with a window only, then layers of each kind of entries in turn."""
    return {
        "architectures": ["DeepseekV4ForCausalLM"],
        "hidden_size": 4096,
        "num_hidden_layers": n_layer,
        "num_attention_heads": 64,
        "head_dim": 512,
        "qk_rope_head_dim": 64,
        "n_routed_experts": n_expert,
        "compress_ratios": [0, 0, *(4 if i % 2 == 0 else 128 for i in range(2, n_layer))],
        "num_hash_layers": 3,
        "rope_scaling": {"type": "yarn", "factor": 16, "original_max_position_embeddings": 65536},
        "vocab_size": 129280,
        "max_position_embeddings": 1048576,
    }


_KIMI_K3: dict[str, Any] = {
    "architectures": ["KimiK3ForConditionalGeneration"], "hidden_size": 7168, "intermediate_size": 33792,
    "num_hidden_layers": 93, "num_attention_heads": 96, "num_key_value_heads": 96, "q_lora_rank": 1536,
    "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "mla_use_nope": True,
    "mla_use_output_gate": True, "linear_attn_config": {
        "full_attn_layers": [*range(4, 93, 4), 93], "head_dim": 128, "num_heads": 96, "short_conv_kernel_size": 4,
        "use_full_rank_gate": True, "gate_lower_bound": -5.0,
    },
    "num_experts": 896, "num_experts_per_token": 16, "num_shared_experts": 2, "moe_intermediate_size": 3072,
    "routed_expert_hidden_size": 3584, "latent_moe_use_norm": True, "attn_res_block_size": 12, "hidden_act": "situ",
    "activation_situ_beta": 4.0, "activation_situ_linear_beta": 25.0, "rms_norm_eps": 1e-5, "vocab_size": 163840,
    "max_position_embeddings": 1048576,
}  # fmt: skip
_MINIMAX: dict[str, Any] = {
    "architectures": ["MiniMaxText01ForCausalLM"], "hidden_size": 6144, "intermediate_size": 9216,
    "num_hidden_layers": 80, "attn_type_list": [int(i % 8 == 7) for i in range(80)], "num_attention_heads": 64,
    "num_key_value_heads": 8, "head_dim": 128, "rotary_dim": 64, "num_local_experts": 32, "num_experts_per_tok": 2,
    "vocab_size": 200064, "max_position_embeddings": 10240000, "rms_norm_eps": 1e-5, "rope_theta": 1e7,
    "postnorm": True,
    **{f"layernorm_{part}_alpha": 3.5565588200778455 for part in ("full_attention", "linear_attention", "mlp")},
}  # fmt: skip
CONFIGS: dict[str, dict[str, Any]] = {
    "rwkv7-0.4b": _rwkv7(1024, 24, 64, 64, 32, 128),
    "rwkv7-1.5b": _rwkv7(2048, 24, 96, 96, 64, 256),
    "rwkv4-169m": {
        "architectures": ["RwkvForCausalLM"], "hidden_size": 768, "num_hidden_layers": 12, "vocab_size": 50277,
    },
    "rwkv5-1.5b": {
        "architectures": ["Rwkv5ForCausalLM"], "hidden_size": 2048, "num_hidden_layers": 24, "vocab_size": 65536,
    },
    "rwkv7a-0.1b": {
        "architectures": ["Rwkv7aForCausalLM"], "hidden_size": 768, "num_hidden_layers": 12, "vocab_size": 65536,
    },
    "hy3-295b": {
        "architectures": ["HYV3ForCausalLM"], "hidden_size": 4096, "intermediate_size": 13312,
        "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8, "vocab_size": 120832,
    },
    "longcat-flash-560b": {
        "architectures": ["LongcatFlashForCausalLM"], "hidden_size": 6144, "num_layers": 28, "q_lora_rank": 1536,
        "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "vocab_size": 131072,
    },
    "rwkv6-1.6b": {
        "architectures": ["Rwkv6ForCausalLM"], "hidden_size": 2048, "num_hidden_layers": 24, "vocab_size": 65536,
    },
    "falcon-h1-1.5b": {
        "architectures": ["FalconH1ForCausalLM"], "hidden_size": 2048, "intermediate_size": 4096,
        "num_hidden_layers": 24, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 128,
        "mamba_d_ssm": 3072, "mamba_n_heads": 48, "mamba_d_head": 64, "mamba_n_groups": 1, "mamba_d_state": 256,
        "mamba_d_conv": 4, "mamba_rms_norm": False, "vocab_size": 65537, "rope_theta": 1e11,
        "max_position_embeddings": 131072, "tie_word_embeddings": False,
    },
    "olmo3-7b": {
        "architectures": ["Olmo3ForCausalLM"], "hidden_size": 4096, "intermediate_size": 11008,
        "num_hidden_layers": 32, "num_attention_heads": 32, "vocab_size": 100278, "max_position_embeddings": 65536,
        "rope_scaling": {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 8192},
    },
    "qwen1.5-moe-a2.7b": {
        "architectures": ["Qwen2MoeForCausalLM"], "hidden_size": 2048, "intermediate_size": 5632,
        "num_hidden_layers": 24, "num_attention_heads": 16, "num_experts": 60, "num_experts_per_tok": 4,
        "moe_intermediate_size": 1408, "shared_expert_intermediate_size": 5632, "vocab_size": 151936,
        "max_position_embeddings": 8192, "rope_theta": 1e6,
    },
    "glm-4-9b": {
        "architectures": ["Glm4ForCausalLM"], "hidden_size": 4096, "intermediate_size": 13696,
        "num_hidden_layers": 40, "num_attention_heads": 32, "num_key_value_heads": 2, "vocab_size": 151552,
        "attention_bias": False, "max_position_embeddings": 32768, "rms_norm_eps": 1e-5,
    },
    "seed-oss-36b": {
        "architectures": ["SeedOssForCausalLM"], "hidden_size": 5120, "intermediate_size": 27648,
        "num_hidden_layers": 64, "num_attention_heads": 80, "num_key_value_heads": 8, "vocab_size": 155136,
        "rope_theta": 1e7,
    },
    "apertus-8b": {
        "architectures": ["ApertusForCausalLM"], "hidden_size": 4096, "intermediate_size": 21504,
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 131072,
    },
    "afm-4.5b": {
        "architectures": ["ArceeForCausalLM"], "hidden_size": 2560, "intermediate_size": 18432,
        "num_hidden_layers": 36, "num_attention_heads": 20, "num_key_value_heads": 4, "vocab_size": 128004,
        "rope_theta": 1e4,
    },
    "command-r-35b": {
        "architectures": ["CohereForCausalLM"], "hidden_size": 8192, "intermediate_size": 22528,
        "num_hidden_layers": 40, "num_attention_heads": 64, "num_key_value_heads": 64, "vocab_size": 256000,
        "rope_theta": 8e6, "model_max_length": 131072,
    },
    "minitron-4b": {
        "architectures": ["NemotronForCausalLM"], "hidden_size": 3072, "intermediate_size": 9216,
        "num_hidden_layers": 32, "num_attention_heads": 24, "num_key_value_heads": 8, "vocab_size": 256000,
    },
    "mixtral-8x7b": {
        "architectures": ["MixtralForCausalLM"], "hidden_size": 4096, "intermediate_size": 14336,
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 32000,
    },
    "gemma-2b": {
        "architectures": ["GemmaForCausalLM"], "hidden_size": 2048, "intermediate_size": 16384,
        "num_hidden_layers": 18, "num_attention_heads": 8, "num_key_value_heads": 1, "vocab_size": 256000,
    },
    "phi-3.5-moe": {
        "architectures": ["PhiMoEForCausalLM"], "hidden_size": 4096, "intermediate_size": 6400,
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 32064,
        "attention_bias": True, "lm_head_bias": True, "num_local_experts": 16, "rope_theta": 1e4,
    },
    "exaone-4-1.2b": {
        "architectures": ["Exaone4ForCausalLM"], "hidden_size": 2048, "intermediate_size": 4096,
        "num_hidden_layers": 30, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 102400,
        "sliding_window": None, "max_position_embeddings": 65536, "rope_theta": 1e6, "tie_word_embeddings": True,
        "rope_scaling": {"rope_type": "llama3", "factor": 16.0, "original_max_position_embeddings": 8192},
    },
    "ernie-4.5-0.3b": {
        "architectures": ["Ernie4_5ForCausalLM"], "hidden_size": 1024, "intermediate_size": 3072,
        "num_hidden_layers": 18, "num_attention_heads": 16, "num_key_value_heads": 2, "vocab_size": 103424,
    },
    "ernie-4.5-21b-a3b": {
        "architectures": ["Ernie4_5_MoeForCausalLM"], "hidden_size": 2560, "intermediate_size": 12288,
        "num_hidden_layers": 28, "num_attention_heads": 20, "num_key_value_heads": 4, "vocab_size": 103424,
        "moe_num_experts": 64, "moe_k": 6,
    },
    "hunyuan-1.8b": {
        "architectures": ["HunYuanDenseV1ForCausalLM"], "hidden_size": 2048, "intermediate_size": 6144,
        "num_hidden_layers": 32, "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 128,
        "vocab_size": 120818, "max_position_embeddings": 262144, "tie_word_embeddings": True,
        "rope_scaling": {"type": "dynamic", "alpha": 1000.0},
    },
    "hunyuan-a13b": {
        "architectures": ["HunYuanMoEV1ForCausalLM"], "hidden_size": 4096, "intermediate_size": 3072,
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
        "vocab_size": 128167, "max_position_embeddings": 32768, "tie_word_embeddings": True, "num_experts": 64,
        "moe_topk": 8, "rope_scaling": {"type": "dynamic", "alpha": 1000.0},
    },
    "command-r7b": {
        "architectures": ["Cohere2ForCausalLM"], "hidden_size": 4096, "intermediate_size": 14336,
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 256000,
        "logit_scale": 0.25, "rope_theta": 5e4,
    },
    "stablelm-2-1.6b": {
        "architectures": ["StableLmForCausalLM"], "hidden_size": 2048, "intermediate_size": 5632,
        "num_hidden_layers": 24, "num_attention_heads": 32, "vocab_size": 100352, "use_qkv_bias": True,
    },
    "dots.llm1": {
        "architectures": ["Dots1ForCausalLM"], "hidden_size": 4096, "intermediate_size": 10944,
        "num_hidden_layers": 62, "num_attention_heads": 32, "vocab_size": 152064, "max_position_embeddings": 32768,
        "n_routed_experts": 128, "num_experts_per_tok": 6, "n_shared_experts": 2, "first_k_dense_replace": 1,
        "norm_topk_prob": True, "routed_scaling_factor": 2.5, "sliding_window": None, "rope_theta": 1e7,
    },
    "glm-4.5-air": {
        "architectures": ["Glm4MoeForCausalLM"], "hidden_size": 4096, "intermediate_size": 10944,
        "num_hidden_layers": 46, "num_attention_heads": 96, "num_key_value_heads": 8, "head_dim": 128,
        "vocab_size": 151552, "n_routed_experts": 128, "num_experts_per_tok": 8, "n_shared_experts": 1,
        "attention_bias": True, "rope_theta": 1e6,
    },
    "llama-4-scout": {  # its text model
        "architectures": ["Llama4ForCausalLM"], "hidden_size": 5120, "intermediate_size": 8192,
        "intermediate_size_mlp": 16384, "num_hidden_layers": 48, "num_attention_heads": 40, "num_key_value_heads": 8,
        "head_dim": 128, "vocab_size": 202048, "num_local_experts": 16, "rope_theta": 5e5,
        "max_position_embeddings": 131072,
    },
    "llama-4-maverick": {
        "architectures": ["Llama4ForCausalLM"], "hidden_size": 5120, "intermediate_size": 8192,
        "intermediate_size_mlp": 16384, "num_hidden_layers": 48, "num_attention_heads": 40, "num_key_value_heads": 8,
        "head_dim": 128, "vocab_size": 202048, "num_local_experts": 128, "interleave_moe_layer_step": 2,
        "use_qk_norm": False, "rope_theta": 5e5, "max_position_embeddings": 131072,
    },
    # four of Scout's layers, with 4 of 16 experts: 4.6 GB at Q8_0
    "llama-4-slice": {
        "architectures": ["Llama4ForCausalLM"], "hidden_size": 5120, "intermediate_size": 8192,
        "intermediate_size_mlp": 16384, "num_hidden_layers": 4, "num_attention_heads": 40, "num_key_value_heads": 8,
        "head_dim": 128, "vocab_size": 202048, "num_local_experts": 4, "rope_theta": 5e5,
        "max_position_embeddings": 131072,
    },
    "lfm2-1.2b": {
        "architectures": ["Lfm2ForCausalLM"], "hidden_size": 2048, "block_ff_dim": 12288, "block_multiple_of": 256,
        "block_auto_adjust_ff_dim": True, "block_ffn_dim_multiplier": 1.0, "num_hidden_layers": 16,
        "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 65536, "rope_theta": 1e6,
        "layer_types": ["full_attention" if i in (2, 5, 8, 10, 12, 14) else "conv" for i in range(16)],
    },
    "lfm3-1.7b": {
        "architectures": ["Lfm3ForCausalLM"], "hidden_size": 2048, "intermediate_size": 7680, "num_hidden_layers": 24,
        "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 128, "sliding_window": 256, "conv_L_cache": 7,
        "vocab_size": 128000,
    },
    "gemma3n-e2b": {  # its text model
        "architectures": ["Gemma3nForCausalLM"], "hidden_size": 2048, "intermediate_size": 8192,
        "num_hidden_layers": 30, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 256,
        "num_kv_shared_layers": 10, "vocab_size": 262400, "vocab_size_per_layer_input": 262144,
    },
    "gemma3n-e4b": {
        "architectures": ["Gemma3nForCausalLM"], "hidden_size": 2048, "intermediate_size": 16384,
        "num_hidden_layers": 35, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 256,
        "num_kv_shared_layers": 15, "vocab_size": 262400, "vocab_size_per_layer_input": 262144,
    },
    "gemma4-e2b": {  # its text model
        "architectures": ["Gemma4ForCausalLM"], "hidden_size": 1536, "intermediate_size": 6144, "num_hidden_layers": 35,
        "layer_types": ["full_attention" if i % 5 == 4 else "sliding_attention" for i in range(35)],
        "num_attention_heads": 8, "num_key_value_heads": 1, "head_dim": 256, "global_head_dim": 512,
        "sliding_window": 512, "num_kv_shared_layers": 20, "use_double_wide_mlp": True, "vocab_size": 262144,
        "hidden_size_per_layer_input": 256, "vocab_size_per_layer_input": 262144, "final_logit_softcapping": 30.0,
    },
    "granite-h-micro": {
        "architectures": ["GraniteMoeHybridForCausalLM"], "hidden_size": 2048, "shared_intermediate_size": 8192,
        "num_hidden_layers": 40, "layer_types": ["attention" if i % 10 == 5 else "mamba" for i in range(40)],
        "num_attention_heads": 32, "num_key_value_heads": 8, "mamba_n_heads": 64, "mamba_d_head": 64,
        "mamba_d_state": 128, "mamba_n_groups": 1, "mamba_d_conv": 4, "mamba_expand": 2, "vocab_size": 100352,
        "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "attention_multiplier": 0.015625,
        "embedding_multiplier": 12, "residual_multiplier": 0.22, "logits_scaling": 8, "tie_word_embeddings": True,
        "position_embedding_type": "nope", "mamba_conv_bias": True,
    },
    "nemotron-h-4b": {
        "architectures": ["NemotronHForCausalLM"], "hidden_size": 3072, "intermediate_size": 12288,
        "hybrid_override_pattern": "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-",
        "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "mamba_num_heads": 112,
        "mamba_head_dim": 64, "ssm_state_size": 128, "n_groups": 8, "conv_kernel": 4, "vocab_size": 131072,
    },
    "qwen3.5-0.8b": {
        "architectures": ["Qwen3_5ForCausalLM"], "hidden_size": 1024, "intermediate_size": 3584,
        "num_hidden_layers": 24, "layer_types": _every(24, 4, "full_attention", "linear_attention"),
        "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 256, "linear_num_key_heads": 16,
        "linear_num_value_heads": 16, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
        "vocab_size": 248320, "max_position_embeddings": 262144, "rope_theta": 1e7, "tie_word_embeddings": True,
    },
    # eight layers of 64, as in Qwen3.5-27B and Ternary-Bonsai-2-27B: 1.2 GB at PQ2_0
    "qwen3.5-27b-slice": {
        "architectures": ["Qwen3_5ForCausalLM"], "hidden_size": 5120, "intermediate_size": 17408,
        "num_hidden_layers": 8, "layer_types": _every(8, 4, "full_attention", "linear_attention"),
        "num_attention_heads": 24, "num_key_value_heads": 4, "head_dim": 256, "linear_num_key_heads": 16,
        "linear_num_value_heads": 48, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
        "vocab_size": 248320, "max_position_embeddings": 262144, "rope_theta": 1e7, "tie_word_embeddings": False,
    },
    # the layers of Qwen3-Next-80B-A3B, four of 48, with 64 of 512 experts: 3 GB at Q8_0
    "qwen3-next-slice": {
        "architectures": ["Qwen3NextForCausalLM"], "hidden_size": 2048, "intermediate_size": 5120,
        "num_hidden_layers": 4, "layer_types": _every(4, 4, "full_attention", "linear_attention"),
        "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256, "linear_num_key_heads": 16,
        "linear_num_value_heads": 32, "linear_key_head_dim": 128, "linear_value_head_dim": 128, "num_experts": 64,
        "num_experts_per_tok": 10, "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512,
        "vocab_size": 151936, "max_position_embeddings": 262144, "rope_theta": 1e7, "tie_word_embeddings": False,
    },
    # four layers of 48, with 64 of 512 experts and a thousandth of the table of n-grams; the number of index heads
    # is in no source that we have
    "qwen3.8-flash-next-slice": {
        "architectures": ["Qwen4ExpForCausalLM"], "hidden_size": 2048, "num_hidden_layers": 4,
        "num_attention_heads": 24, "num_key_value_heads": 2, "head_dim": 256, "num_experts": 64,
        "indexer_n_heads": 16, "indexer_kv_heads": 1, "indexer_head_dim": 128, "indexer_budget": 2048,
        "indexer_compress_ratio": 4, "output_gate_type": "sigmoid", "ple_layer_ids": [2],
        "ngram_vocab_size_base": 20000, "eos_token_id": 248046, "vocab_size": 248320,
        "max_position_embeddings": 262144, "rope_parameters": {"rope_theta": 1e7, "partial_rotary_factor": 0.25},
    },
    "kimi-linear-48b": _kimi(27, 256, [4, 8, 12, 16, 20, 24, 27]),
    # four of its layers, with 64 of 256 experts: 2.5 GB at Q8_0
    "kimi-linear-slice": _kimi(4, 64, [4]),
    "kimi-k3": _KIMI_K3,
    # two layers of 93, one of each kind, with 16 of 896 experts: 5 GB at Q8_0
    "kimi-k3-slice": {
        **_KIMI_K3, "num_hidden_layers": 2, "num_experts": 16,
        "linear_attn_config": {**_KIMI_K3["linear_attn_config"], "full_attn_layers": [2]},
    },
    "minimax-text-01": _MINIMAX,
    # two layers of 80, one of each kind, with 4 of 32 experts: 4.5 GB at Q8_0
    "minimax-slice": {**_MINIMAX, "num_hidden_layers": 2, "attn_type_list": [0, 1], "num_local_experts": 4},
    "phi-4-mini-flash": {
        "architectures": ["Phi4FlashForCausalLM"], "hidden_size": 2560, "intermediate_size": 10240,
        "num_hidden_layers": 32, "num_attention_heads": 40, "num_key_value_heads": 20, "sliding_window": 512,
        "vocab_size": 200064, "max_position_embeddings": 262144,
    },
    "hymba-1.5b": {
        "architectures": ["HymbaForCausalLM"], "hidden_size": 1600, "intermediate_size": 5504, "num_hidden_layers": 32,
        "num_attention_heads": 25, "num_key_value_heads": 5, "vocab_size": 32001, "max_position_embeddings": 8192,
        "mamba_dt_rank": 100,
        "kv_reuse_group": [[i, i + 1] for i in (*range(1, 14, 2), *range(19, 30, 2))] + [[16, 17, 18]],
    },
    "plamo-2-1b": {
        "architectures": ["Plamo2ForCausalLM"], "hidden_size": 2048, "intermediate_size": 8192,
        "num_hidden_layers": 16, "num_attention_heads": 16, "num_key_value_heads": 1, "mamba_num_heads": 32,
        "vocab_size": 100000, "max_position_embeddings": 10485760,
    },
    "ling-3-tiny": {
        "architectures": ["BailingHybridForCausalLM"], "hidden_size": 1536, "intermediate_size": 4608,
        "num_hidden_layers": 24, "layer_group_size": 6, "num_attention_heads": 16, "num_key_value_heads": 16,
        "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "head_dim": 128,
        "first_k_dense_replace": 1, "num_experts": 128, "num_experts_per_token": 8, "moe_intermediate_size": 512,
        "num_expert_group": 8, "topk_group": 4, "vocab_size": 157184, "model_max_length": 262144,
    },
    "glm-5.3-flash": _glm5(45, 288, 3),
    # four of its layers, with 16 of 288 experts: 3.4 GB at Q8_0
    "glm-5.3-slice": _glm5(4, 16, 1),
    "deepseek-v4-flash": _deepseek4(43, 256),
    # four of its layers, with 16 of 256 experts: 3.5 GB at Q8_0
    "deepseek-v4-slice": _deepseek4(4, 16),
    "gpt-oss-20b": {
        "architectures": ["GptOssForCausalLM"], "hidden_size": 2880, "intermediate_size": 2880,
        "num_hidden_layers": 24, "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64,
        "num_local_experts": 32, "num_experts_per_tok": 4, "vocab_size": 201088, "max_position_embeddings": 131072,
    },
    "ministral-3-3b": {
        "architectures": ["Ministral3ForCausalLM"], "hidden_size": 3072, "intermediate_size": 9216,
        "num_hidden_layers": 26, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
        "vocab_size": 131072, "tie_word_embeddings": True,
    },
    "deepseek-v2-lite": {
        "architectures": ["DeepseekV2ForCausalLM"], "hidden_size": 2048, "intermediate_size": 10944,
        "num_hidden_layers": 27, "num_attention_heads": 16, "num_key_value_heads": 16, "q_lora_rank": None,
        "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
        "first_k_dense_replace": 1, "n_routed_experts": 64, "num_experts_per_tok": 6, "moe_intermediate_size": 1408,
        "n_shared_experts": 2, "rope_theta": 10000.0, "vocab_size": 102400, "max_position_embeddings": 163840,
        "rope_scaling": {
            "type": "yarn", "factor": 40, "mscale": 0.707, "mscale_all_dim": 0.707,
            "original_max_position_embeddings": 4096,
        },
    },
    "zamba2-1.2b": {
        "architectures": ["Zamba2ForCausalLM"], "hidden_size": 2048, "intermediate_size": 8192,
        "num_hidden_layers": 38, "layers_block_type": _every(38, 6, "hybrid", "mamba"), "num_attention_heads": 32,
        "num_mem_blocks": 1, "adapter_rank": 128, "use_shared_attention_adapter": True, "use_mem_rope": True,
        "n_mamba_heads": 64, "mamba_headdim": 64, "mamba_d_state": 64, "mamba_ngroups": 1, "mamba_d_conv": 4,
        "mamba_expand": 2, "vocab_size": 32000,
    },
    "xlstm-7b": {
        "architectures": ["xLSTMForCausalLM"], "hidden_size": 4096, "num_hidden_layers": 32, "num_heads": 8,
        "vocab_size": 50304,
    },
    "pythia-1.4b": {
        "architectures": ["GPTNeoXForCausalLM"], "hidden_size": 2048, "intermediate_size": 8192,
        "num_hidden_layers": 24, "num_attention_heads": 16, "vocab_size": 50304,
    },
    "falcon-7b": {
        "architectures": ["FalconForCausalLM"], "hidden_size": 4544, "num_hidden_layers": 32,
        "num_attention_heads": 71, "vocab_size": 65024,
    },
    "zaya1-8b": {
        "architectures": ["ZayaForCausalLM"], "hidden_size": 2048, "num_hidden_layers": 40, "vocab_size": 262272,
    },
    "olmo-hybrid-7b": {
        "architectures": ["OlmoHybridForCausalLM"], "hidden_size": 3840, "intermediate_size": 11008,
        "num_hidden_layers": 32, "num_attention_heads": 30, "vocab_size": 100352,
        "rope_parameters": {"rope_type": "default", "rope_theta": None},
    },
}  # fmt: skip
