"""Granite 4, Granite with experts, and Bamba."""

from family_rows import FamilyRows
from reference.llama import llama
from reference.mamba import bamba

from hybrid.quant.ggml.errors import CheckpointError, UnsupportedError

_BIASED = {"mamba_proj_bias": True, "mamba_conv_bias": False, "attention_bias": True, "mlp_bias": True}  # all possible
_LIMITED = {"time_step_limit": [0.09, 0.4]}  # bounds of step sizes that the random weights exceed
ROWS = FamilyRows(
    configs={
        "bamba-biased": {  # unpublished, but runs in transformers
            "architectures": ["BambaForCausalLM"], "hidden_size": 96, "intermediate_size": 136, "num_hidden_layers": 3,
            "attn_layer_indices": [1], "num_attention_heads": 6, "num_key_value_heads": 2, "mamba_expand": 2,
            "mamba_n_heads": 12, "mamba_d_head": 16, "mamba_n_groups": 3, "mamba_d_state": 7, "mamba_d_conv": 3,
            "rms_norm_eps": 2e-4, "rope_theta": 1e4, "tie_word_embeddings": False, **_BIASED, **_LIMITED,
        },
        "granite-4-attention": {
            "architectures": ["GraniteMoeHybridForCausalLM"], "hidden_size": 96, "shared_intermediate_size": 160,
            "num_hidden_layers": 2, "layer_types": ["attention", "attention"], "position_embedding_type": "rope",
            "num_attention_heads": 6, "num_key_value_heads": 2, "rms_norm_eps": 1e-5, "rope_theta": 1e4,
            "attention_multiplier": 0.2, "embedding_multiplier": 6.0, "residual_multiplier": 0.4, "logits_scaling": 3.0,
            "tie_word_embeddings": True,
        },
        "granite-hybrid-biased": {  # unpublished, but runs in transformers
            "architectures": ["GraniteMoeHybridForCausalLM"], "hidden_size": 96, "intermediate_size": 56,
            "shared_intermediate_size": 72, "num_hidden_layers": 3, "layer_types": ["mamba", "attention", "mamba"],
            "num_attention_heads": 6, "num_key_value_heads": 2, "num_local_experts": 5, "num_experts_per_tok": 2,
            "position_embedding_type": "rope", "mamba_expand": 2, "mamba_n_heads": 12, "mamba_d_head": 16,
            "mamba_n_groups": 3, "mamba_d_state": 7, "mamba_d_conv": 3, "rms_norm_eps": 2e-4, "rope_theta": 1e4,
            "attention_multiplier": 0.2, "embedding_multiplier": 6.0, "residual_multiplier": 0.4, "logits_scaling": 3.0,
            "tie_word_embeddings": True, "mamba_proj_bias": True, "mamba_conv_bias": False, "attention_bias": True,
            **_LIMITED,
        },
        # without position_embedding_type: no positions
        "granite-4-without-positions": {
            "architectures": ["GraniteMoeHybridForCausalLM"], "hidden_size": 96, "shared_intermediate_size": 136,
            "num_hidden_layers": 2, "layer_types": ["attention", "attention"], "num_attention_heads": 6,
            "num_key_value_heads": 2, "num_local_experts": 0, "rms_norm_eps": 1e-5, "attention_multiplier": 0.2,
            "embedding_multiplier": 6.0, "residual_multiplier": 0.4, "logits_scaling": 3.0, "tie_word_embeddings": True,
            "attention_bias": True, "mamba_n_heads": 12,
        },
        "granitemoe": {
            "architectures": ["GraniteMoeForCausalLM"], "hidden_size": 96, "intermediate_size": 64,
            "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 2, "rms_norm_eps": 1e-5,
            "rope_theta": 1e4, "num_local_experts": 5, "num_experts_per_tok": 2, "attention_multiplier": 0.2,
            "embedding_multiplier": 6.0, "residual_multiplier": 0.4, "logits_scaling": 3.0, "tie_word_embeddings": True,
        },
    },
    twins={"BambaForCausalLM": bamba, "GraniteMoeHybridForCausalLM": bamba, "GraniteMoeForCausalLM": llama},
    noise={"granite-dense": 4.8e-5, "granite-moe": 3.0e-5, "bamba": 5.5e-5},
    unchecked=("granite-dense", "granite-moe", "bamba"),
    model_types={"BambaForCausalLM": "bamba", "GraniteMoeHybridForCausalLM": "granitemoehybrid"},
    examples={
        "bamba": {
            "architectures": ["BambaForCausalLM"], "hidden_size": 24, "intermediate_size": 20, "num_hidden_layers": 2,
            "num_attention_heads": 3, "num_key_value_heads": 1, "mamba_n_heads": 4, "mamba_d_head": 12,
            "mamba_n_groups": 2, "mamba_d_state": 6, "mamba_d_conv": 3, "attn_layer_indices": [1], "rms_norm_eps": 1e-5,
        },
        "granite-hybrid": {
            "architectures": ["GraniteMoeHybridForCausalLM"], "hidden_size": 24, "intermediate_size": 14,
            "num_hidden_layers": 2, "num_attention_heads": 3, "num_key_value_heads": 1, "mamba_n_heads": 4,
            "mamba_d_head": 12, "mamba_n_groups": 2, "mamba_d_state": 6, "mamba_d_conv": 3,
            "layer_types": ["mamba", "attention"], "num_local_experts": 3, "num_experts_per_tok": 2,
            "shared_intermediate_size": 10, "rms_norm_eps": 1e-5,
        },
        "granite-shared": {
            "architectures": ["GraniteMoeSharedForCausalLM"], "hidden_size": 24, "intermediate_size": 14,
            "num_hidden_layers": 2, "num_attention_heads": 3, "num_key_value_heads": 1, "num_local_experts": 3,
            "num_experts_per_tok": 2, "shared_intermediate_size": 10,
        },
    },
    errors=(
        ("bamba-biased", {"head_dim": 24}, UnsupportedError, "head_dim = 24 is not supported, only 16 is"),
        ("granite-hybrid-biased", {"head_dim": 24}, UnsupportedError, "head_dim = 24 is not supported, only 16 is"),
        ("granitemoe", {"num_experts_per_tok": 6}, CheckpointError, "num_experts_per_tok = 6.*1 to 5"),
    ),
    refused=("bamba", "granite-dense", "granite-moe", "bamba-biased", "granite-hybrid-biased"),
    mlx={"granitemoe": "granitemoe", "granitemoehybrid": "granite-hybrid-biased"},
    sizes={"granite-h-micro": 3.19},
)  # fmt: skip
