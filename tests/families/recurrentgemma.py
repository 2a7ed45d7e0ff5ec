"""RecurrentGemma."""

from family_rows import FamilyRows
from reference.recurrent_gemma import recurrent_gemma

from hybrid.quant.ggml.errors import CheckpointError

NAME = "RecurrentGemmaForCausalLM"
ROWS = FamilyRows(
    configs={
        "recurrentgemma": {
            "architectures": [NAME], "hidden_size": 96, "intermediate_size": 320, "num_hidden_layers": 4,
            "block_types": ["recurrent", "attention", "recurrent"], "num_attention_heads": 3, "num_key_value_heads": 1,
            "head_dim": 40, "attention_window_size": 11, "lru_width": 72, "conv1d_width": 4, "rms_norm_eps": 1e-6,
            "rope_theta": 1e4, "logits_soft_cap": 6.0,
        },
    },
    twins={NAME: recurrent_gemma},
    noise={"recurrent-gemma": 1.6e-5},
    errors=(
        ("recurrentgemma", {"lru_width": 70}, CheckpointError, "lru_width = 70.*a multiple of the 3 heads"),
        ("recurrentgemma", {"block_types": ["mamba"]}, CheckpointError, "block_types = .*recurrent and attention"),
        ("recurrentgemma", {"intermediate_size": 321}, CheckpointError, "intermediate_size = 321.*an even number"),
    ),
    notes=(("recurrentgemma", {}, "no such architecture"),),
    refused=("recurrent-gemma", "recurrentgemma"),
    mlx={"recurrent_gemma": "recurrentgemma"},
)  # fmt: skip
