"""OpenELM."""

from family_rows import FamilyRows
from reference.openelm import openelm

NAME = "OpenELMForCausalLM"
ROWS = FamilyRows(
    configs={
        "openelm": {
            "architectures": [NAME], "model_dim": 96, "num_transformer_layers": 3, "head_dim": 24,
            "num_query_heads": [3, 4, 6], "num_kv_heads": [1, 2, 2], "ffn_multipliers": [0.5, 1.3, 2.0],
            "ffn_dim_divisor": 32, "max_context_length": 512, "rope_freq_constant": 10000,
        },
    },
    twins={NAME: openelm},
)  # fmt: skip
