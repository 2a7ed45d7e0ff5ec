"""Falcon."""

from family_rows import FamilyRows
from reference.ungated import falcon

NAME = "FalconForCausalLM"
ROWS = FamilyRows(
    configs={
        "falcon": {
            "architectures": [NAME], "hidden_size": 96, "num_hidden_layers": 2, "num_attention_heads": 6,
            "layer_norm_epsilon": 3e-4, "rope_theta": 2e4,
        },
        "falcon-normed": {
            "architectures": [NAME], "hidden_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
            "num_kv_heads": 2, "new_decoder_architecture": True, "ffn_hidden_size": 160, "tie_word_embeddings": False,
        },
        "falcon-yarn": {
            "architectures": [NAME], "hidden_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
            "rope_parameters": {
                "rope_type": "yarn", "rope_theta": 300.0, "factor": 4.0, "attention_factor": 1.3,
                "original_max_position_embeddings": 128,
            },
        },
    },
    twins={NAME: falcon},
    model_types={NAME: "falcon"},
)  # fmt: skip
