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
    published={
        NAME: {
            "activation_fn_name": "swish", "ffn_dim_divisor": 256, "ffn_multipliers": [0.5, 4.0], "ffn_with_glu": True,
            "head_dim": 64, "max_context_length": 2048, "model_dim": 1280, "normalization_layer_name": "rms_norm",
            "normalize_qk_projections": True, "num_gqa_groups": 4, "num_kv_heads": [3, 5], "num_query_heads": [12, 20],
            "num_transformer_layers": 16, "qkv_multipliers": [0.5, 1.0], "rope_freq_constant": 10000,
            "rope_max_length": 4096, "share_input_output_layers": True, "vocab_size": 32000, "initializer_range": 0.02,
            "use_cache": True, "bos_token_id": 1, "eos_token_id": 2,
        },
    },
    converted={"openelm": {"initializer_range": 0.02}},
)  # fmt: skip
