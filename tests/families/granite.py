"""Granite without Mamba layers."""

from family_rows import FamilyRows
from reference.llama import llama

NAME = "GraniteForCausalLM"
ROWS = FamilyRows(
    configs={
        "granite-attention": {
            "architectures": [NAME], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 2,
            "num_attention_heads": 6, "num_key_value_heads": 2, "rms_norm_eps": 1e-5, "rope_theta": 1e4,
            "attention_multiplier": 0.2, "embedding_multiplier": 6.0, "residual_multiplier": 0.4, "logits_scaling": 3.0,
            "tie_word_embeddings": True,
        },
    },
    twins={NAME: llama},
    examples={
        "granite4-vision": {
            "architectures": ["Granite4VisionForConditionalGeneration"], "vision_config": {"num_hidden_layers": 3},
            "deepstack_layer_map": [[2, 3], [-1, 0]], "spatial_target_layers": [4, 2], "spatial_vision_layer": -3,
            "text_config": {
                "vocab_size": 40, "hidden_size": 18, "intermediate_size": 20, "num_hidden_layers": 5,
                "num_attention_heads": 3, "num_key_value_heads": 1, "max_position_embeddings": 64,
            },
        },
    },
    converted={"granite-attention": {}},
    mlx={"granite": "granite-attention"},
)  # fmt: skip
