"""Zamba."""

from family_rows import FamilyRows
from reference.zamba import zamba

from hybrid.quant.ggml.errors import CheckpointError, UnsupportedError

NAME = "ZambaForCausalLM"
ROWS = FamilyRows(
    configs={
        "zamba": {
            "architectures": [NAME], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 5,
            "layers_block_type": ["mamba", "hybrid", "mamba", "hybrid", "hybrid"], "num_attention_heads": 4,
            "num_key_value_heads": 2, "mamba_expand": 1, "n_mamba_heads": 4, "mamba_d_state": 7, "mamba_d_conv": 3,
            "mamba_dt_rank": 5, "rms_norm_eps": 1e-5,
        },
        "zamba-biased": {  # unpublished, but runs in transformers
            "architectures": [NAME], "hidden_size": 80, "intermediate_size": 104, "num_hidden_layers": 5,
            "layers_block_type": ["mamba", "hybrid", "hybrid", "mamba", "hybrid"], "num_attention_heads": 5,
            "num_key_value_heads": 5, "mamba_expand": 2, "n_mamba_heads": 4, "mamba_d_state": 7, "mamba_d_conv": 4,
            "mamba_dt_rank": 9, "rms_norm_eps": 2e-4, "mamba_proj_bias": True, "mamba_conv_bias": False,
        },
    },
    twins={NAME: zamba},
    noise={"zamba": 4.0e-5, "zamba-many": 6.3e-5},
    unchecked=("zamba-many",),
    model_types={NAME: "zamba"},
    examples={
        "zamba-periodic": {
            "architectures": [NAME], "hidden_size": 24, "intermediate_size": 20, "num_hidden_layers": 8,
            "num_attention_heads": 4, "num_key_value_heads": 2, "mamba_expand": 1, "n_mamba_heads": 4,
            "attn_layer_period": 3, "attn_layer_offset": 1, "mamba_d_state": 5, "mamba_d_conv": 3, "mamba_dt_rank": 3,
            "rms_norm_eps": 1e-5,
        },
    },
    errors=(
        ("zamba", {"n_mamba_heads": 5}, CheckpointError, "n_mamba_heads = 5.*a divisor of the 96 channels"),
        (
            "zamba", {"layers_block_type": ["mamba"] * 5}, CheckpointError,
            "layers_block_type.*at least one layer of kind hybrid",
        ),
        ("zamba", {"hidden_act": "silu"}, UnsupportedError, "hidden_act"),
    ),
    notes=(("zamba", {}, "no such architecture"),),
    refused=("zamba", "zamba-many", "zamba-biased"),
)  # fmt: skip
