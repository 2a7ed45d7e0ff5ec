"""Ministral 3."""

from family_rows import FamilyRows
from reference.llama import llama

from hybrid.quant.ggml.errors import CheckpointError

NAME = "Ministral3ForCausalLM"
ROWS = FamilyRows(
    configs={
        "ministral3": {
            "architectures": [NAME], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 2,
            "num_attention_heads": 5, "num_key_value_heads": 1, "head_dim": 24, "rms_norm_eps": 1e-5,
            "rope_parameters": {
                "rope_type": "yarn", "rope_theta": 300.0, "factor": 4.0, "beta_fast": 9.0, "beta_slow": 2.5,
                "original_max_position_embeddings": 16, "mscale": 1.0, "mscale_all_dim": 0.6,
                "llama_4_scaling_beta": 0.4,
            },
            "tie_word_embeddings": False,
        },
        "ministral3-window": {
            "architectures": [NAME], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 2,
            "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "rms_norm_eps": 1e-5,
            "sliding_window": 13,
            "rope_parameters": {
                "rope_type": "yarn", "rope_theta": 500.0, "factor": 4.0, "truncate": False, "mscale": 1.4,
                "original_max_position_embeddings": 24, "mscale_all_dim": 0.6, "llama_4_scaling_beta": 0.1,
            },
            "tie_word_embeddings": True,
        },
    },
    twins={NAME: llama},
    noise={"ministral3": 2.1e-5},
    model_types={NAME: "ministral3"},
    examples={
        "mistral3-pictures": {
            "architectures": ["Mistral3ForConditionalGeneration"], "vision_config": {"hidden_size": 7},
            "tie_word_embeddings": False,
            "text_config": {
                "model_type": "ministral3", "vocab_size": 40, "hidden_size": 18, "intermediate_size": 20,
                "num_hidden_layers": 2, "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 8,
                "rms_norm_eps": 1e-5, "max_position_embeddings": 64,
                "rope_parameters": {
                    "rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "mscale": 1.0, "mscale_all_dim": 1.0,
                    "original_max_position_embeddings": 16, "llama_4_scaling_beta": 0.1,
                },
            },
        },
    },
    errors=(
        (
            "ministral3", {"rope_parameters": {"llama_4_scaling_beta": -1.0}}, CheckpointError,
            "llama_4_scaling_beta = -1.*at least 0",
        ),
    ),
    converted={"ministral3": {"model_type": "ministral3"}},
    different=("ministral3-window",),
    mlx={"ministral3": "ministral3"},
    sizes={"ministral-3-3b": 3.43},
    loaded=("ministral3",),
)  # fmt: skip
