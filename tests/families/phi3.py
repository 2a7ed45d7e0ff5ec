"""Phi-3 and Phi-4."""

from family_rows import Config, FamilyRows
from reference.llama import llama

from hybrid.quant.ggml.errors import CheckpointError

NAME = "Phi3ForCausalLM"
# 9 pairs: RoPE rotates 18 values of heads of 24.
LONGROPE: Config = {
    "short_factor": [1.0, 1.02, 1.05, 1.1, 1.2, 1.35, 1.5, 1.6, 1.8],
    "long_factor": [1.1, 1.4, 2.0, 3.1, 4.7, 7.0, 9.5, 14.0, 21.0],
}
ROWS = FamilyRows(
    configs={
        "phi3": {
            "architectures": [NAME], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 2,
            "num_attention_heads": 4, "num_key_value_heads": 2, "rms_norm_eps": 1e-5, "rope_theta": 1e4,
            "partial_rotary_factor": 0.75, "tie_word_embeddings": False,
        },
        "phi3-window": {
            "architectures": [NAME], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 2,
            "num_attention_heads": 4, "num_key_value_heads": 2, "rms_norm_eps": 1e-5, "rope_theta": 1e4,
            "sliding_window": 9, "tie_word_embeddings": False,
        },
        # the long factors apply from 25 tokens of text or context on
        "phi3-longrope": {
            "architectures": [NAME], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 2,
            "num_attention_heads": 4, "num_key_value_heads": 2, "rms_norm_eps": 1e-5, "rope_theta": 1e4,
            "original_max_position_embeddings": 24, "partial_rotary_factor": 0.75, "tie_word_embeddings": False,
            "rope_scaling": {"type": "longrope", **LONGROPE},
        },
        # the long factors apply from 301 tokens on
        "phi3-shortrope": {
            "architectures": [NAME], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 2,
            "num_attention_heads": 4, "num_key_value_heads": 2, "rms_norm_eps": 1e-5, "sliding_window": 31,
            "original_max_position_embeddings": 300, "tie_word_embeddings": False,
            "rope_parameters": {"rope_type": "longrope", "rope_theta": 1e4, "partial_rotary_factor": 0.75, **LONGROPE},
        },
    },
    twins={NAME: llama},
    model_types={NAME: "phi3"},
    errors=(
        ("phi3-longrope", {"rope_scaling": {"type": "longrope"}}, CheckpointError, "has no short_factor"),
        ("phi3-longrope", {"hidden_size": 128}, CheckpointError, "short_factor = .*12 positive numbers"),
        (
            "phi3-longrope", {"original_max_position_embeddings": 1}, CheckpointError,
            "original_max_position_embeddings = 1",
        ),
    ),
    refused=("phi3", "phi3-window", "phi3-longrope", "phi3-shortrope"),
    mlx={"phi3": "phi3"},
)  # fmt: skip
