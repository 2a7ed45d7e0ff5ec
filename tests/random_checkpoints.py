"""Checkpoints with random weights, made from a config alone: the families declare which tensors they need.

All dimensions have different odd sizes. Values are such that every layer matters and nothing saturates.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
from families import merged
from random_compressed import COMPRESSED
from random_experts import EXPERT_CONFIGS
from random_latent import LATENT
from random_phi4flash import PHI4_FLASH_CONFIGS
from random_plain import PLAIN
from random_pooled import POOLED
from random_recurrent import RECURRENT_CONFIGS
from random_ssm import SSM_CONFIGS
from random_windows import STRETCHED, WINDOWS
from safetensors.numpy import load_file, save_file

from hybrid.convert.architectures import Family
from hybrid.convert.architectures.family import Shapes
from hybrid.convert.checkpoint import Config
from hybrid.convert.plan import family_of

N_VOCAB = 2023  # of the tokenizer of tests/data/checkpoints/mamba-bf16

CONFIGS: dict[str, dict[str, Any]] = {
    "falcon-h1": {
        "architectures": ["FalconH1ForCausalLM"], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 2,
        "num_attention_heads": 5, "num_key_value_heads": 1, "head_dim": 24, "mamba_d_ssm": 112, "mamba_n_heads": 7,
        "mamba_d_head": 16, "mamba_n_groups": 1, "mamba_d_state": 12, "mamba_d_conv": 3, "mamba_rms_norm": False,
        "rms_norm_eps": 1e-5, "rope_theta": 1e6, "tie_word_embeddings": True, "key_multiplier": 0.6,
        "attention_in_multiplier": 1.1, "attention_out_multiplier": 0.9, "ssm_in_multiplier": 1.25,
        "ssm_out_multiplier": 0.7, "embedding_multiplier": 3.0, "lm_head_multiplier": 0.8,
        "mlp_multipliers": [0.9, 0.8], "ssm_multipliers": [0.8, 1.1, 0.7, 0.6, 1.3],
    },
    "falcon-h1-normed": {
        "architectures": ["FalconH1ForCausalLM"], "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
        "num_attention_heads": 2, "num_key_value_heads": 2, "mamba_d_ssm": 96, "mamba_n_heads": 6,
        "mamba_d_head": 16, "mamba_n_groups": 2, "mamba_d_state": 8, "mamba_d_conv": 4, "mamba_rms_norm": True,
        "mamba_norm_before_gate": False, "rms_norm_eps": 1e-5, "rope_theta": 1e4, "tie_word_embeddings": False,
    },
    "nemotron-h": {
        "architectures": ["NemotronHForCausalLM"], "hidden_size": 96, "intermediate_size": 224,
        "hybrid_override_pattern": "M-*M-", "num_attention_heads": 5, "num_key_value_heads": 1, "head_dim": 24,
        "mamba_num_heads": 7, "mamba_head_dim": 16, "ssm_state_size": 12, "n_groups": 1, "conv_kernel": 3,
        "layer_norm_epsilon": 1e-5, "tie_word_embeddings": False,
    },
    "nemotron-h-moe": {
        "architectures": ["NemotronHForCausalLM"], "hidden_size": 96, "intermediate_size": 224,
        "hybrid_override_pattern": "MEM*E", "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 32,
        "mamba_num_heads": 8, "mamba_head_dim": 16, "ssm_state_size": 16, "n_groups": 2, "conv_kernel": 4,
        "layer_norm_epsilon": 1e-5, "tie_word_embeddings": False, "n_routed_experts": 5, "num_experts_per_tok": 3,
        "moe_intermediate_size": 64, "moe_shared_expert_intermediate_size": 160, "routed_scaling_factor": 2.5,
    },
    **EXPERT_CONFIGS,
    **COMPRESSED,
    **RECURRENT_CONFIGS, **PHI4_FLASH_CONFIGS,
    "lfm2": {
        "architectures": ["Lfm2ForCausalLM"], "hidden_size": 96, "intermediate_size": 200, "num_hidden_layers": 4,
        "block_multiple_of": 32, "layer_types": ["conv", "full_attention", "conv", "conv"], "num_attention_heads": 3,
        "num_key_value_heads": 1, "conv_L_cache": 3, "norm_eps": 1e-5, "rope_theta": 1e6,
    },
    "lfm3": {
        "architectures": ["Lfm3ForCausalLM"], "hidden_size": 96, "intermediate_size": 136, "num_hidden_layers": 4,
        "layer_types": ["conv", "full_attention", "sliding_attention", "conv"], "num_attention_heads": 5,
        "num_key_value_heads": 1, "head_dim": 24, "sliding_window": 11, "conv_L_cache": 6, "norm_eps": 1e-5,
    },
    "lfm3-biased": {  # unpublished: without gates and norms after layers
        "architectures": ["Lfm3ForCausalLM"], "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3,
        "layer_types": ["sliding_attention", "full_attention", "conv"], "num_attention_heads": 6,
        "num_key_value_heads": 2, "head_dim": 20, "sliding_window": 7, "conv_L_cache": 4, "norm_eps": 2e-4,
        "conv_bias": True, "attention_bias": True, "use_sandwich_norm": False, "use_attention_gate": False,
        "rope_parameters": {
            "full_attention": {"rope_type": "proportional", "rope_theta": 3e4, "partial_rotary_factor": 0.7,
                               "factor": 1.5},
            "sliding_attention": {"rope_type": "default", "rope_theta": 2e3},
        },
    },
    "gemma4": {
        "architectures": ["Gemma4ForCausalLM"], "hidden_size": 96, "intermediate_size": 104, "num_hidden_layers": 6,
        "layer_types": ["sliding_attention", "full_attention"] * 3, "num_attention_heads": 6, "num_key_value_heads": 3,
        "head_dim": 24, "global_head_dim": 40, "num_global_key_value_heads": 2, "attention_k_eq_v": True,
        "num_kv_shared_layers": 2, "use_double_wide_mlp": True, "hidden_size_per_layer_input": 20,
        "vocab_size_per_layer_input": N_VOCAB, "rms_norm_eps": 1e-6, "sliding_window": 11,
        "final_logit_softcapping": 6.0, "enable_moe_block": True, "num_experts": 7, "top_k_experts": 3,
        "moe_intermediate_size": 56,
    },
    "gemma4-window": {  # layers in the usual order, without experts and embeddings for layers, like 31B
        "architectures": ["Gemma4ForCausalLM"], "hidden_size": 64, "intermediate_size": 72, "num_hidden_layers": 7,
        "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 18, "global_head_dim": 34, "rms_norm_eps": 1e-5,
        "num_global_key_value_heads": 1, "attention_k_eq_v": True, "hidden_size_per_layer_input": 0,
        "sliding_window": 9,
    },
    "gemma4-order": {  # llama.cpp does not run it; without experts, like E2B
        "architectures": ["Gemma4ForCausalLM"], "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 5,
        "layer_types": ["full_attention", "sliding_attention", "sliding_attention", "full_attention",
                        "sliding_attention"],
        "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 20, "global_head_dim": 26,
        "num_global_key_value_heads": 3, "num_kv_shared_layers": 2, "hidden_size_per_layer_input": 9,
        "vocab_size_per_layer_input": N_VOCAB + 5, "rms_norm_eps": 2e-4, "sliding_window": 7,
        "rope_parameters": {
            "full_attention": {"rope_type": "proportional", "rope_theta": 3e4, "partial_rotary_factor": 0.4},
            "sliding_attention": {"rope_type": "default", "rope_theta": 2e3},
        },
    },
    "gemma3n": {
        "architectures": ["Gemma3nForCausalLM"], "hidden_size": 96, "intermediate_size": 136, "num_hidden_layers": 7,
        "layer_types": [*["sliding_attention", "full_attention"] * 3, "sliding_attention"], "num_attention_heads": 6,
        "num_key_value_heads": 2, "head_dim": 10, "num_kv_shared_layers": 3, "hidden_size_per_layer_input": 20,
        "vocab_size_per_layer_input": N_VOCAB, "rms_norm_eps": 1e-6, "sliding_window": 11, "laurel_rank": 12,
        "activation_sparsity_pattern": [0.95, 0.95, 0.4, 0.0, 0.0, 0.95, 0.0], "final_logit_softcapping": 6.0,
    },
    "gemma3n-order": {  # three streams, the second is the active one; other widths, no shared layers
        "architectures": ["Gemma3nForCausalLM"], "hidden_size": 60, "intermediate_size": [72, 96, 64, 40],
        "num_hidden_layers": 4, "layer_types": ["full_attention", *["sliding_attention"] * 2, "full_attention"],
        "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 22, "num_kv_shared_layers": 0,
        "hidden_size_per_layer_input": 9, "vocab_size_per_layer_input": N_VOCAB + 5, "rms_norm_eps": 2e-4,
        "sliding_window": 7, "laurel_rank": 5, "altup_num_inputs": 3, "altup_active_idx": 1,
        "altup_correct_scale": False, "activation_sparsity_pattern": [0.0, 0.7, 0.0, 0.3],
        "rope_parameters": {
            "full_attention": {"rope_type": "linear", "rope_theta": 3e4, "factor": 2.5},
            "sliding_attention": {"rope_type": "default", "rope_theta": 2e3},
        },
    },
    "qwen3next": {
        "architectures": ["Qwen3NextForCausalLM"], "hidden_size": 96, "intermediate_size": 128, "num_hidden_layers": 4,
        "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 40, "partial_rotary_factor": 0.4,
        "linear_num_key_heads": 2, "linear_num_value_heads": 6, "linear_key_head_dim": 24, "linear_value_head_dim": 24,
        "linear_conv_kernel_dim": 4, "num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 64,
        "shared_expert_intermediate_size": 96, "rms_norm_eps": 1e-6, "rope_theta": 1e6, "tie_word_embeddings": False,
    },
    "kimi-linear": {
        "architectures": ["KimiLinearForCausalLM"], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 4,
        "layer_types": ["linear_attention", "full_attention", "linear_attention", "full_attention"],
        "mlp_layer_types": ["dense", "sparse", "sparse", "sparse"], "num_attention_heads": 3, "num_key_value_heads": 3,
        "kv_lora_rank": 40, "qk_nope_head_dim": 20, "qk_rope_head_dim": 12, "v_head_dim": 24, "linear_num_heads": 3,
        "linear_head_dim": 24, "linear_conv_kernel_dim": 3, "num_experts": 8, "num_experts_per_token": 3,
        "moe_intermediate_size": 64, "num_shared_experts": 2, "num_expert_group": 4, "topk_group": 2,
        "routed_scaling_factor": 1.7, "rms_norm_eps": 1e-5, "tie_word_embeddings": False,
    },
    "kimi-linear-normed": {
        "architectures": ["KimiLinearForCausalLM"], "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3,
        "layer_types": ["linear_attention", "full_attention", "full_attention"], "first_k_dense_replace": 3,
        "num_attention_heads": 5, "num_key_value_heads": 5, "q_lora_rank": 36, "kv_lora_rank": 33,
        "qk_nope_head_dim": 17, "qk_rope_head_dim": 0, "v_head_dim": 9, "linear_num_heads": 2, "linear_head_dim": 7,
        "linear_conv_kernel_dim": 4, "num_experts": 2, "num_experts_per_token": 1, "moe_intermediate_size": 32,
        "rms_norm_eps": 1e-6,
    },
    "bailing-hybrid": {
        "architectures": ["BailingHybridForCausalLM"], "hidden_size": 96, "intermediate_size": 160,
        "num_hidden_layers": 4, "layer_group_size": 2, "first_k_dense_replace": 1, "num_attention_heads": 5,
        "num_key_value_heads": 5, "kv_lora_rank": 36, "qk_nope_head_dim": 20, "qk_rope_head_dim": 12, "v_head_dim": 28,
        "head_dim": 16, "short_conv_kernel_size": 3, "kda_lower_bound": -3.5, "num_experts": 12,
        "num_experts_per_token": 3, "moe_intermediate_size": 64, "num_shared_experts": 2, "num_expert_group": 4,
        "topk_group": 2, "routed_scaling_factor": 1.7, "rms_norm_eps": 1e-6, "rope_theta": 5e4,
        "tie_word_embeddings": False,
    },
    "qwen35": {
        "architectures": ["Qwen3_5ForCausalLM"], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 3,
        "layer_types": ["linear_attention", "full_attention", "linear_attention"], "num_attention_heads": 3,
        "num_key_value_heads": 1, "head_dim": 32, "rope_parameters": {"mrope_section": [2, 1, 1]},
        "linear_num_key_heads": 2, "linear_num_value_heads": 6, "linear_key_head_dim": 24, "linear_value_head_dim": 24,
        "linear_conv_kernel_dim": 3, "rms_norm_eps": 1e-6, "rope_theta": 1e6,
    },
    "qwen35moe": {
        "architectures": ["Qwen3_5MoeForCausalLM"], "hidden_size": 96, "num_hidden_layers": 4,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "full_attention_interval": 2,
        "linear_num_key_heads": 4, "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 16,
        "linear_conv_kernel_dim": 4, "num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 64,
        "shared_expert_intermediate_size": 64, "rms_norm_eps": 1e-6, "rope_theta": 1e6, "tie_word_embeddings": False,
    },
    "llama-biased": {
        "architectures": ["LlamaForCausalLM"], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 2,
        "num_attention_heads": 3, "num_key_value_heads": 1, "rms_norm_eps": 1e-5, "rope_theta": 1e4,
        "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": False,
    },
    "qwen2": {
        "architectures": ["Qwen2ForCausalLM"], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 2,
        "num_attention_heads": 6, "num_key_value_heads": 2, "rms_norm_eps": 1e-6, "rope_theta": 1e6,
        "sliding_window": 7, "use_sliding_window": False, "tie_word_embeddings": True,
    },
    "qwen3": {
        "architectures": ["Qwen3ForCausalLM"], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 2,
        "num_attention_heads": 5, "num_key_value_heads": 1, "head_dim": 24, "rms_norm_eps": 1e-6, "rope_theta": 1e6,
        "tie_word_embeddings": True,
    },
    "qwen3moe": {
        "architectures": ["Qwen3MoeForCausalLM"], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "rms_norm_eps": 1e-6, "rope_theta": 1e6,
        "num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 64, "norm_topk_prob": True,
        "tie_word_embeddings": False,
    },
    "gemma2": {
        "architectures": ["Gemma2ForCausalLM"], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 3,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "rms_norm_eps": 1e-6, "sliding_window": 11,
        "query_pre_attn_scalar": 32, "attn_logit_softcapping": 3.0, "final_logit_softcapping": 5.0,
    },
    "gemma3": {
        "architectures": ["Gemma3ForCausalLM"], "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 7,
        "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 32, "rms_norm_eps": 1e-6, "sliding_window": 11,
        "query_pre_attn_scalar": 32, "rope_theta": 1e6, "rope_local_base_freq": 1e4,
        "rope_scaling": {"rope_type": "linear", "factor": 8.0},
    },
    "phi3": {
        "architectures": ["Phi3ForCausalLM"], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "rms_norm_eps": 1e-5, "rope_theta": 1e4,
        "partial_rotary_factor": 0.75, "tie_word_embeddings": False,
    },
    "mistral": {
        "architectures": ["MistralForCausalLM"], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 2,
        "num_attention_heads": 5, "num_key_value_heads": 1, "head_dim": 24, "rms_norm_eps": 1e-5, "rope_theta": 1e6,
        "sliding_window": None, "tie_word_embeddings": False,
    },
    "olmo2": {
        "architectures": ["Olmo2ForCausalLM"], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 3,
        "num_attention_heads": 6, "num_key_value_heads": 2, "rms_norm_eps": 1e-6, "rope_theta": 5e5,
        "tie_word_embeddings": False,
    },
    "olmoe": {
        "architectures": ["OlmoeForCausalLM"], "hidden_size": 96, "intermediate_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 3, "num_key_value_heads": 3, "rms_norm_eps": 1e-5, "rope_theta": 1e4,
        "num_experts": 7, "num_experts_per_tok": 3, "norm_topk_prob": False, "tie_word_embeddings": False,
    },
    "openelm": {
        "architectures": ["OpenELMForCausalLM"], "model_dim": 96, "num_transformer_layers": 3, "head_dim": 24,
        "num_query_heads": [3, 4, 6], "num_kv_heads": [1, 2, 2], "ffn_multipliers": [0.5, 1.3, 2.0],
        "ffn_dim_divisor": 32, "max_context_length": 512, "rope_freq_constant": 10000,
    },
    "smollm3": {
        "architectures": ["SmolLM3ForCausalLM"], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 5,
        "num_attention_heads": 6, "num_key_value_heads": 2, "rms_norm_eps": 1e-5, "rope_theta": 5e4,
    },
    "starcoder2": {
        "architectures": ["Starcoder2ForCausalLM"], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 2,
        "num_attention_heads": 6, "num_key_value_heads": 2, "norm_epsilon": 1e-5, "rope_theta": 1e5, "use_bias": True,
        "hidden_act": "gelu_pytorch_tanh",
    },
    "phi2": {
        "architectures": ["PhiForCausalLM"], "hidden_size": 96, "intermediate_size": 384, "num_hidden_layers": 2,
        "num_attention_heads": 4, "layer_norm_eps": 1e-5, "partial_rotary_factor": 0.5, "hidden_act": "gelu_new",
        "tie_word_embeddings": False,
    },
    "gpt2": {
        "architectures": ["GPT2LMHeadModel"], "n_embd": 96, "n_layer": 2, "n_head": 6, "n_positions": 512,
        "layer_norm_epsilon": 1e-5, "activation_function": "gelu_new",
    },
    "granitemoe": {
        "architectures": ["GraniteMoeForCausalLM"], "hidden_size": 96, "intermediate_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 6, "num_key_value_heads": 2, "rms_norm_eps": 1e-5, "rope_theta": 1e4,
        "num_local_experts": 5, "num_experts_per_tok": 2, "attention_multiplier": 0.2, "embedding_multiplier": 6.0,
        "residual_multiplier": 0.4, "logits_scaling": 3.0, "tie_word_embeddings": True,
    },
    "granite-4-attention": {
        "architectures": ["GraniteMoeHybridForCausalLM"], "hidden_size": 96, "shared_intermediate_size": 160,
        "num_hidden_layers": 2, "layer_types": ["attention", "attention"], "position_embedding_type": "rope",
        "num_attention_heads": 6, "num_key_value_heads": 2, "rms_norm_eps": 1e-5, "rope_theta": 1e4,
        "attention_multiplier": 0.2, "embedding_multiplier": 6.0, "residual_multiplier": 0.4, "logits_scaling": 3.0,
        "tie_word_embeddings": True,
    },
    "granite-attention": {
        "architectures": ["GraniteForCausalLM"], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 2,
        "num_attention_heads": 6, "num_key_value_heads": 2, "rms_norm_eps": 1e-5, "rope_theta": 1e4,
        "attention_multiplier": 0.2, "embedding_multiplier": 6.0, "residual_multiplier": 0.4, "logits_scaling": 3.0,
        "tie_word_embeddings": True,
    },
    "recurrentgemma": {
        "architectures": ["RecurrentGemmaForCausalLM"], "hidden_size": 96, "intermediate_size": 320,
        "num_hidden_layers": 4, "block_types": ["recurrent", "attention", "recurrent"], "num_attention_heads": 3,
        "num_key_value_heads": 1, "head_dim": 40, "attention_window_size": 11, "lru_width": 72, "conv1d_width": 4,
        "rms_norm_eps": 1e-6, "rope_theta": 1e4, "logits_soft_cap": 6.0,
    },
    "rwkv6": {
        "architectures": ["Rwkv6ForCausalLM"], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 4,
        "head_size": 32, "rescale_every": 2, "layer_norm_epsilon": 1e-5, "tie_word_embeddings": False,
    },
    "rwkv7": {
        "architectures": ["RWKV7ForCausalLM"], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 3,
        "head_dim": 32, "decay_low_rank_dim": 32, "a_low_rank_dim": 40, "v_low_rank_dim": 24, "gate_low_rank_dim": 48,
        "norm_eps": 1e-5, "hidden_act": "sqrelu", "tie_word_embeddings": False,
    },
    "zamba": {
        "architectures": ["ZambaForCausalLM"], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 5,
        "layers_block_type": ["mamba", "hybrid", "mamba", "hybrid", "hybrid"], "num_attention_heads": 4,
        "num_key_value_heads": 2, "mamba_expand": 1, "n_mamba_heads": 4, "mamba_d_state": 7, "mamba_d_conv": 3,
        "mamba_dt_rank": 5, "rms_norm_eps": 1e-5,
    },
    "zamba2": {
        "architectures": ["Zamba2ForCausalLM"], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 5,
        "layers_block_type": ["mamba", "hybrid", "hybrid", "mamba", "hybrid"], "num_attention_heads": 6,
        "num_key_value_heads": 6, "mamba_expand": 2, "n_mamba_heads": 12, "mamba_headdim": 16, "mamba_ngroups": 3,
        "mamba_d_state": 12, "mamba_d_conv": 3, "num_mem_blocks": 2, "adapter_rank": 5, "rms_norm_eps": 1e-5,
        "use_shared_attention_adapter": True, "use_mem_rope": True, "rope_theta": 1e4,
    },
    "zamba2-2.7b": {
        "architectures": ["Zamba2ForCausalLM"], "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4,
        "layers_block_type": ["mamba", "hybrid", "mamba", "hybrid"], "num_attention_heads": 2,
        "num_key_value_heads": 1, "mamba_expand": 2, "n_mamba_heads": 8, "mamba_headdim": 16, "mamba_ngroups": 1,
        "mamba_d_state": 9, "mamba_d_conv": 4, "num_mem_blocks": 1, "adapter_rank": 17, "rms_norm_eps": 1e-5,
        "use_shared_attention_adapter": False, "use_mem_rope": False,
    },
    "gptneox": {
        "architectures": ["GPTNeoXForCausalLM"], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 2,
        "num_attention_heads": 3, "rotary_pct": 0.5, "rotary_emb_base": 3000, "layer_norm_eps": 3e-4,
        "hidden_act": "gelu",
    },
    "gptneox-serial": {
        "architectures": ["GPTNeoXForCausalLM"], "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
        "num_attention_heads": 4, "use_parallel_residual": False, "hidden_act": "gelu_fast",
    },
    "falcon": {
        "architectures": ["FalconForCausalLM"], "hidden_size": 96, "num_hidden_layers": 2, "num_attention_heads": 6,
        "layer_norm_epsilon": 3e-4, "rope_theta": 2e4,
    },
    "falcon-normed": {
        "architectures": ["FalconForCausalLM"], "hidden_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_kv_heads": 2, "new_decoder_architecture": True, "ffn_hidden_size": 160, "tie_word_embeddings": False,
    },
    "zaya": {
        "architectures": ["ZayaForCausalLM"], "hidden_size": 96, "num_hidden_layers": 3, "num_attention_heads": 6,
        "num_key_value_heads": 2, "head_dim": 20, "moe_intermediate_size": 64, "num_experts": 3,
        "router_hidden_size": 24, "cca_time0": 3, "cca_time1": 4, "rms_norm_eps": 2e-4, "attention_bias": True,
        "rope_parameters": {"rope_type": "default", "hybrid": {"rope_theta": 1e5, "partial_rotary_factor": 0.6}},
    },
    "zaya-window": {
        "architectures": ["ZayaForCausalLM"], "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 2,
        "num_key_value_heads": 1, "head_dim": 24, "moe_intermediate_size": 32, "num_experts": 5,
        "router_hidden_size": 16, "cca_time0": 2, "cca_time1": 1, "sliding_window": 11, "lm_head_bias": True,
        "rms_norm_eps": 1e-5, "layer_types": ["hybrid_sliding", "hybrid", "hybrid_sliding"],
        "tie_word_embeddings": False,
    },
    "xlstm": {
        "architectures": ["xLSTMForCausalLM"], "hidden_size": 96, "num_hidden_layers": 3, "num_heads": 4,
        "qk_dim_factor": 0.5, "v_dim_factor": 1.0, "ffn_proj_factor": 1.667, "ffn_round_up_to_multiple_of": 32,
        "gate_soft_cap": 5.0, "output_logit_soft_cap": 6.0, "norm_eps": 1e-5, "eps": 1e-6, "use_bias": False,
        "autocast_kernel_dtype": "float32", "chunk_size": 64, "tie_word_embeddings": False,
    },
    "olmo-hybrid": {
        "architectures": ["OlmoHybridForCausalLM"], "hidden_size": 96, "intermediate_size": 160,
        "num_hidden_layers": 4, "layer_types": ["linear_attention", "full_attention", *["linear_attention"] * 2],
        "num_attention_heads": 6, "num_key_value_heads": 2, "rms_norm_eps": 1e-6, "linear_num_key_heads": 3,
        "linear_num_value_heads": 6, "linear_key_head_dim": 24, "linear_value_head_dim": 20,
        "linear_conv_kernel_dim": 3, "rope_parameters": {"rope_type": "default", "rope_theta": None},
    },
    "olmo-hybrid-turned": {
        "architectures": ["OlmoHybridForCausalLM"], "hidden_size": 64, "intermediate_size": 96,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4, "rms_norm_eps": 1e-6,
        "linear_allow_neg_eigval": False, "rope_theta": 5e5, "tie_word_embeddings": True,
    },
    "rwkv6qwen2": {
        "architectures": ["RWKV6Qwen2ForCausalLM"], "hidden_size": 96, "intermediate_size": 160,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "lora_rank_tokenshift": 16,
        "lora_rank_decay": 40, "rms_norm_eps": 1e-6, "hidden_act": "silu", "tie_word_embeddings": False,
    },
    "arwkv7": {
        "architectures": ["RwkvHybridForCausalLM"], "hidden_size": 96, "intermediate_size": 160,
        "num_hidden_layers": 3, "head_size": 32, "lora_rank_decay": 64, "lora_rank_iclr": 64, "wkv_version": 7,
        "wkv_has_gate": True, "wkv_has_group_norm": True, "rms_norm_eps": 1e-6, "hidden_act": "silu",
        "tie_word_embeddings": False,
    },
    "arwkv7-plain": {
        "architectures": ["RwkvHybridForCausalLM"], "hidden_size": 64, "intermediate_size": 96,
        "num_hidden_layers": 2, "head_size": 64, "lora_rank_decay": 64, "lora_rank_iclr": 64, "wkv_version": 7,
        "wkv_has_gate": False, "wkv_has_group_norm": False, "rms_norm_eps": 1e-6, "hidden_act": "silu",
        "tie_word_embeddings": False,
    },
    "lfm2moe": {
        "architectures": ["Lfm2MoeForCausalLM"], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 3,
        "layer_types": ["conv", "full_attention", "conv"], "num_attention_heads": 6, "num_key_value_heads": 2,
        "conv_L_cache": 4, "norm_eps": 1e-5, "rope_theta": 1e6, "num_dense_layers": 1, "num_experts": 5,
        "num_experts_per_tok": 2, "moe_intermediate_size": 64,
    },
    **SSM_CONFIGS,
    **WINDOWS, **STRETCHED, **PLAIN, **LATENT, **POOLED,
    **merged("configs"),
}  # fmt: skip

# Models that only make embeddings. They use the tokenizer of tests/data/tokenizers/wordpiece.
ENCODERS: dict[str, dict[str, Any]] = {
    "bert": {
        "architectures": ["BertModel"], "vocab_size": 2000, "hidden_size": 60, "intermediate_size": 104,
        "num_hidden_layers": 3, "num_attention_heads": 5, "max_position_embeddings": 160, "type_vocab_size": 2,
        "layer_norm_eps": 1e-12, "hidden_act": "gelu",
    },
    "roberta": {
        "architectures": ["XLMRobertaModel"], "vocab_size": 2000, "hidden_size": 48, "intermediate_size": 80,
        "num_hidden_layers": 2, "num_attention_heads": 3, "max_position_embeddings": 202, "type_vocab_size": 1,
        "layer_norm_eps": 1e-5, "hidden_act": "gelu", "pad_token_id": 1,
    },
    "bert-scores": {
        "architectures": ["BertForSequenceClassification"], "vocab_size": 2000, "hidden_size": 56,
        "intermediate_size": 88, "num_hidden_layers": 2, "num_attention_heads": 7, "max_position_embeddings": 190,
        "type_vocab_size": 2, "layer_norm_eps": 1e-12, "hidden_act": "gelu",
        "id2label": {"0": "far", "1": "near", "2": "same"},
    },
    "roberta-scores": {
        "architectures": ["XLMRobertaForSequenceClassification"], "vocab_size": 2000, "hidden_size": 40,
        "intermediate_size": 72, "num_hidden_layers": 2, "num_attention_heads": 5, "max_position_embeddings": 190,
        "type_vocab_size": 1, "layer_norm_eps": 1e-5, "hidden_act": "gelu", "pad_token_id": 1,
        "id2label": {"0": "LABEL_0"},
    },
    "modern-bert": {
        "architectures": ["ModernBertModel"], "vocab_size": 2000, "hidden_size": 60, "intermediate_size": 88,
        "num_hidden_layers": 5, "num_attention_heads": 3, "max_position_embeddings": 700, "local_attention": 22,
        "global_attn_every_n_layers": 2, "global_rope_theta": 80000.0, "local_rope_theta": 5000.0, "norm_eps": 1e-4,
        "hidden_activation": "silu", "classifier_pooling": "mean", "pad_token_id": 0,
    },
    "modern-bert-scores": {
        "architectures": ["ModernBertForSequenceClassification"], "vocab_size": 2000, "hidden_size": 48,
        "intermediate_size": 72, "num_hidden_layers": 4, "num_attention_heads": 4, "max_position_embeddings": 256,
        "local_attention": 12, "norm_eps": 1e-5, "hidden_activation": "gelu", "classifier_pooling": "mean",
        "id2label": {"0": "no", "1": "yes"}, "pad_token_id": 0,
    },
    "modern-bert-first": {
        "architectures": ["ModernBertForSequenceClassification"], "vocab_size": 2000, "hidden_size": 40,
        "intermediate_size": 56, "num_hidden_layers": 2, "num_attention_heads": 5, "max_position_embeddings": 256,
        "layer_types": ["full_attention", "sliding_attention"], "local_attention": 9, "num_labels": 1,
        "rope_parameters": {
            "full_attention": {"rope_theta": 40000.0, "rope_type": "default"},
            "sliding_attention": {"rope_theta": 9000.0, "rope_type": "default"},
        },
        "pad_token_id": 0,
    },
    "embedding-gemma": {
        "architectures": ["Gemma3TextModel"], "vocab_size": 2000, "hidden_size": 60, "intermediate_size": 72,
        "num_hidden_layers": 3, "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 26,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        "max_position_embeddings": 400, "sliding_window": 15, "query_pre_attn_scalar": 26, "rms_norm_eps": 1e-5,
        "rope_theta": 5e5, "rope_local_base_freq": 8e3, "use_bidirectional_attention": True, "pad_token_id": 0,
    },
    "lfm2-bidirectional": {
        "architectures": ["Lfm2BidirectionalModel"], "vocab_size": 2000, "hidden_size": 60, "intermediate_size": 130,
        "num_hidden_layers": 4, "num_attention_heads": 6, "num_key_value_heads": 2, "max_position_embeddings": 300,
        "layer_types": ["conv", "full_attention", "conv", "full_attention"], "conv_L_cache": 3, "norm_eps": 1e-5,
        "rope_theta": 30000.0, "block_multiple_of": 8, "pad_token_id": 0,
    },
    "bert-even": {
        "architectures": ["BertModel"], "vocab_size": 2000, "hidden_size": 64, "intermediate_size": 96,
        "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 600, "type_vocab_size": 1,
        "layer_norm_eps": 1e-6, "hidden_act": "gelu",
    },
}  # fmt: skip


def family_for(config: dict[str, Any], shapes: Shapes | None = None) -> Family:
    """The family of a config. shapes: of some tensors of the checkpoint. A larger tensor is added to them, because
    families compare sizes with the largest."""
    wrapped = Config(config, "config.json")
    some = {**shapes, "the largest": (1 << 20, 1)} if shapes else {}
    return family_of(wrapped)[0].read(wrapped, some)


def tensors(config: dict[str, Any], seed: int = 1, shapes: Shapes | None = None) -> dict[str, np.ndarray]:
    """The f32 tensors, by their names in Hugging Face checkpoints; tensors that the converter splits are present as
    parts. shapes: of tensors that the family looks for before it declares its own."""
    rng = np.random.default_rng(seed)
    by_name: dict[str, np.ndarray] = {}
    family = family_for(config, shapes)
    for row in family.rows():
        without = family.tied and (row.tied_to or row.otherwise)
        for i, name in enumerate(() if without else row.sources):
            shape = row.expected_of(i)
            by_name.setdefault(name, _choices(shape, family, rng) if row.integers else _values(name, shape, rng))
    by_name |= {name: _values(name, shape, rng) for name, shape in family.in_keys().items()}
    return by_name


def _choices(shape: tuple[int, ...], family: Any, rng: np.random.Generator) -> np.ndarray:
    """i64: different experts for each token of the vocabulary."""
    return np.argsort(rng.random((shape[0], family.n_expert)), axis=1)[:, : shape[1]].astype(np.int64)


def _values(name: str, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    noise = rng.standard_normal(shape).astype(np.float32)
    if name.endswith("recurrent_param"):
        return noise / 2 - 4
    if name.endswith("A_log"):
        return np.log(rng.uniform(0.5, 8, shape)).astype(np.float32)
    if name.endswith("dt_bias"):
        return noise - 2
    if ("embed" in name or name in ("wte.weight", "wpe.weight")) and len(shape) == 2:
        return noise / 8
    if name.endswith("time_decay"):
        return noise / 2 - 2
    if (
        ((".time_maa_" in name or ".time_mix_" in name) and shape[:2] == (1, 1))
        or (".attn.x_" in name and "x_proj" not in name)
        or name.endswith("ffn.x_k")
    ):
        return 0.5 + noise / 4
    if name.endswith(("_states_scale", ".residual_scale", "hc_attn_scale", "hc_ffn_scale", ".correct_output_scale")):
        return 1 + noise / 8
    if name.endswith("balancing_biases"):  # the choice "no expert" has -1, so all choices are about equally good
        return noise / 8 - 1
    if name.endswith(("act_fn.beta", "act_fn.eps")):
        return np.asarray(0.5 + noise / 8 if name.endswith("beta") else -np.abs(noise) / 4)
    last = name.rpartition(".")[0].rpartition(".")[2]
    if (
        "norm" in name
        or "subln" in name
        or (last.startswith(("ln", "LayerNorm")) and name.endswith("weight"))
        or name.endswith((".D", "layer_scalar", "router.scale", "per_expert_scale"))
    ):
        large = name.endswith((".lnq.weight", ".lnk.weight"))  # scores that a soft cap changes
        return 6 * large + 1 + noise / 8
    if len(shape) < 2:
        return noise / 4
    return noise / np.float32(np.sqrt(shape[-1] if "conv1d" not in name else 1))


def complete(config: dict[str, Any]) -> dict[str, Any]:
    """The config with the fields that all configs have."""
    return {"vocab_size": N_VOCAB, "max_position_embeddings": 512, **config}


def write(config: dict[str, Any], folder: Path, shapes: Shapes | None = None) -> Path:
    """Write config.json and model.safetensors, without a tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    full = complete(config)
    (folder / "config.json").write_text(json.dumps(full))
    save_file(tensors(full, shapes=shapes), folder / "model.safetensors")
    return folder


def pad_positions(folder: Path) -> None:
    """Put the rows that belong to no token before the positions of a RoBERTa."""
    config, name = json.loads((folder / "config.json").read_text()), "embeddings.position_embeddings.weight"
    if "Roberta" in config["architectures"][0]:
        tensors = load_file(folder / "model.safetensors")
        unused = np.full((config["pad_token_id"] + 1, tensors[name].shape[1]), 1e6, np.float32)
        save_file({**tensors, name: np.concatenate([unused, tensors[name]])}, folder / "model.safetensors")
