"""Phi-4-mini-flash."""

from family_rows import FamilyRows
from reference.phi4flash import phi4flash

NAME = "Phi4FlashForCausalLM"
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
)  # fmt: skip
