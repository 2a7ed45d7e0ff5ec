"""Jamba."""

from family_rows import FamilyRows
from reference.mamba import jamba

from hybrid.quant.ggml.errors import UnsupportedError

NAME = "JambaForCausalLM"
ROWS = FamilyRows(
    configs={
        "jamba-biased": {  # unpublished, but runs in transformers
            "architectures": [NAME], "hidden_size": 72, "intermediate_size": 88, "num_hidden_layers": 4,
            "num_attention_heads": 6, "num_key_value_heads": 2, "attn_layer_period": 3, "attn_layer_offset": 1,
            "expert_layer_period": 2, "expert_layer_offset": 1, "num_experts": 5, "num_experts_per_tok": 2,
            "mamba_d_state": 7, "mamba_d_conv": 3, "mamba_expand": 2, "mamba_dt_rank": 9, "rms_norm_eps": 2e-4,
            "mamba_proj_bias": True, "mamba_conv_bias": False, "tie_word_embeddings": False,
        },
    },
    twins={NAME: jamba},
    noise={"jamba-dense": 2.3e-5, "jamba-moe": 1.7e-5, "jamba-11m": 8.6e-6, "jamba-bias": 1.3e-5},
    unchecked=("jamba-dense", "jamba-moe", "jamba-11m", "jamba-bias"),
    model_types={NAME: "jamba"},
    examples={
        "jamba": {
            "architectures": [NAME], "hidden_size": 12, "intermediate_size": 20, "num_hidden_layers": 4,
            "num_attention_heads": 3, "num_key_value_heads": 1, "num_experts": 3, "num_experts_per_tok": 2,
            "expert_layer_period": 2, "expert_layer_offset": 1, "attn_layer_period": 3, "attn_layer_offset": 2,
            "mamba_d_state": 5, "mamba_d_conv": 3, "mamba_expand": 2, "mamba_dt_rank": 3,
        },
    },
    errors=(("jamba-biased", {"head_dim": 24}, UnsupportedError, "head_dim = 24 is not supported, only 12 is"),),
    refused=("jamba-dense", "jamba-bias", "jamba-biased"),
    mlx={"jamba": "jamba-biased"},
)  # fmt: skip
