"""MiniCPM3."""

from typing import Any

from family_rows import FamilyRows
from reference.minicpm import minicpm

from hybrid.quant.ggml.errors import CheckpointError, UnsupportedError

NAME = "MiniCPM3ForCausalLM"
_SIZES: dict[str, Any] = {
    "architectures": [NAME], "hidden_size": 100, "intermediate_size": 160, "num_hidden_layers": 3,
    "num_attention_heads": 5, "num_key_value_heads": 5, "kv_lora_rank": 36, "q_lora_rank": 40, "qk_nope_head_dim": 28,
    "qk_rope_head_dim": 12,
}  # fmt: skip
_LONG = {
    "rope_type": "longrope", "long_factor": [1.5 + i for i in range(7)], "short_factor": [1 + i / 8 for i in range(7)],
    "original_max_position_embeddings": 1024,
}  # fmt: skip
ROWS = FamilyRows(
    configs={
        "minicpm3": _SIZES,
        "minicpm3-long": {
            **_SIZES, "q_lora_rank": None, "qk_rope_head_dim": 14, "v_head_dim": 24, "scale_emb": 7.5,
            "scale_depth": 1.1, "dim_model_base": 40, "rms_norm_eps": 1e-6, "rope_theta": 2e4,
            "max_position_embeddings": 2048, "rope_scaling": _LONG, "tie_word_embeddings": False,
        },
        "minicpm3-unscaled": {**_SIZES, "scale_depth": None, "dim_model_base": None},
    },
    repeated=("minicpm3-long", "minicpm3-unscaled"),
    twins={NAME: minicpm},
    defaults={
        NAME: {
            "scale_emb": 12, "scale_depth": 1.4, "dim_model_base": 256, "rms_norm_eps": 1e-5,
            "tie_word_embeddings": True, "rope_theta": 10000.0,
        }
    },
    model_types={NAME: "minicpm3"},
    errors=(
        ("minicpm3", {"attention_bias": True}, UnsupportedError, "attention_bias = true"),
        ("minicpm3", {"num_key_value_heads": 1}, CheckpointError, "num_key_value_heads = 1"),
        ("minicpm3", {"qk_rope_head_dim": 13}, CheckpointError, "qk_rope_head_dim = 13"),
        ("minicpm3", {"rope_scaling": {"rope_type": "yarn", "factor": 2.0}}, UnsupportedError, 'rope_type = "yarn"'),
    ),
    notes=(
        ("minicpm3", {"q_lora_rank": None}, "there queries have latent vectors"),
        ("minicpm3", {"scale_emb": 10}, "12, 1.4 and 256"),
    ),
    converted={"minicpm3": {"vocab_size": 2000, "model_type": "minicpm3"}},
    refused=("minicpm3-long",),
    different=("minicpm3-unscaled",),
)  # fmt: skip
