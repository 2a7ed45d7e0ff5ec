"""Phi-4-mini-flash."""

from family_rows import Config, FamilyRows
from reference.phi4flash import phi4flash

from hybrid.quant.ggml.errors import CheckpointError, UnsupportedError

NAME = "Phi4FlashForCausalLM"
_PUBLISHED: Config = {
    "vocab_size": 200064, "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 32,
    "num_attention_heads": 40, "num_key_value_heads": 20, "hidden_act": "silu", "max_position_embeddings": 262144,
    "layer_norm_eps": 1e-5, "rope_theta": 10000.0, "sliding_window": 512, "layer_types": None, "mb_per_layer": 2,
    "mamba_d_state": 16, "mamba_d_conv": 4, "mamba_expand": 2, "mamba_dt_rank": "auto", "mamba_conv_bias": True,
    "mamba_proj_bias": False, "mlp_bias": False, "lm_head_bias": False, "resid_pdrop": 0.0, "embd_pdrop": 0.0,
    "attention_dropout": 0.0, "initializer_range": 0.02, "use_cache": True, "tie_word_embeddings": True,
    "bos_token_id": 199999, "eos_token_id": 199999, "pad_token_id": 199999,
}  # fmt: skip
ROWS = FamilyRows(
    configs={
        "phi4flash": {
            "architectures": [NAME], "hidden_size": 144, "intermediate_size": 104, "num_hidden_layers": 8,
            "num_attention_heads": 6, "num_key_value_heads": 2, "sliding_window": 11, "mamba_d_state": 7,
            "mamba_d_conv": 3, "mamba_expand": 2, "mamba_dt_rank": 5, "layer_norm_eps": 3e-4,
            "tie_word_embeddings": True,
        },
        # unpublished: biases, no windows, untied output
        "phi4flash-biased": {
            "architectures": [NAME], "hidden_size": 96, "intermediate_size": 72, "num_hidden_layers": 8,
            "num_attention_heads": 2, "num_key_value_heads": 2, "sliding_window": None, "mamba_d_state": 16,
            "mamba_proj_bias": True, "mamba_conv_bias": False, "tie_word_embeddings": False,
        },
    },
    twins={NAME: phi4flash},
    published={NAME: _PUBLISHED},
    errors=(
        ("phi4flash", {"num_hidden_layers": 6}, CheckpointError, "num_hidden_layers = 6.*a multiple of 4"),
        ("phi4flash", {"mb_per_layer": 4}, UnsupportedError, "mb_per_layer = 4 is not supported, only 2 is"),
        (
            "phi4flash", {"num_attention_heads": 3, "num_key_value_heads": 3}, CheckpointError,
            "num_attention_heads = 3.*even",
        ),
        ("phi4flash", {"num_key_value_heads": 3}, CheckpointError, "num_key_value_heads = 3.*even"),
        ("phi4flash", {"mlp_bias": True}, UnsupportedError, "mlp_bias = true is not supported"),
        ("phi4flash", {"lm_head_bias": True}, UnsupportedError, "lm_head_bias = true is not supported"),
        (
            "phi4flash", {"layer_types": ["full_attention"] * 8}, CheckpointError,
            "layer_types.*windows on the attention of the first",
        ),
    ),
    notes=(("phi4flash", {}, "no such architecture"),),
    refused=("phi4flash", "phi4flash-biased"),
    sizes={"phi-4-mini-flash": 3.85},
    loaded=("phi4flash",),
)  # fmt: skip
