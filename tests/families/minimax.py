"""MiniMax, in both spellings."""

from family_rows import Config, FamilyRows
from reference.minimax import minimax

_PUBLISHED: Config = {
    "vocab_size": 200064, "hidden_size": 6144, "intermediate_size": 9216, "num_hidden_layers": 80,
    "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 128, "hidden_act": "silu",
    "max_position_embeddings": 10240000, "rms_norm_eps": 1e-5, "rope_theta": 10000000, "rotary_dim": 64,
    "sliding_window": None, "attention_dropout": 0.0, "num_experts_per_tok": 2, "num_local_experts": 32,
    "output_router_logits": False, "router_aux_loss_coef": 0.001, "router_jitter_noise": 0.0,
    "attn_type_list": [0, 0, 0, 0, 0, 0, 0, 1], "postnorm": True, "layernorm_full_attention_alpha": 3.5565588200778455,
    "layernorm_full_attention_beta": 1.0, "layernorm_linear_attention_alpha": 3.5565588200778455,
    "layernorm_linear_attention_beta": 1.0, "layernorm_mlp_alpha": 3.5565588200778455, "layernorm_mlp_beta": 1.0,
    "shared_intermediate_size": 0, "shared_moe_mode": "sigmoid", "initializer_range": 0.02, "use_cache": True,
    "tie_word_embeddings": False, "bos_token_id": None, "eos_token_id": None,
}  # fmt: skip
ROWS = FamilyRows(
    configs={
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
            "num_key_value_heads": 2, "head_dim": 24, "rotary_dim": 12, "num_local_experts": 3,
            "num_experts_per_tok": 2, "rms_norm_eps": 1e-5, "rope_theta": 1e7, "postnorm": True,
            "layernorm_full_attention_alpha": 3.5, "layernorm_full_attention_beta": 1.0,
            "layernorm_linear_attention_alpha": 3.5, "layernorm_linear_attention_beta": 1.0, "layernorm_mlp_alpha": 3.5,
            "layernorm_mlp_beta": 1.0, "shared_intermediate_size": 0, "tie_word_embeddings": False,
        },
    },
    twins={"MiniMaxForCausalLM": minimax, "MiniMaxText01ForCausalLM": minimax, "MiniMaxM1ForCausalLM": minimax},
    noise={"minimax": 1.0e-5},
    model_types={"MiniMaxForCausalLM": "minimax"},
    published={"MiniMaxText01ForCausalLM": _PUBLISHED, "MiniMaxM1ForCausalLM": _PUBLISHED},
    alike={"MiniMaxM1ForCausalLM": "MiniMaxText01ForCausalLM"},
    different=("minimax-scaled", "minimax-window"),
    sizes={"minimax-text-01": 456.1, "minimax-slice": 4.20},
    loaded=("minimax-scaled",),
)  # fmt: skip
