"""SmolLM3."""

from family_rows import FamilyRows
from reference.llama import llama

NAME = "SmolLM3ForCausalLM"
ROWS = FamilyRows(
    configs={
        "smollm3": {
            "architectures": [NAME], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 5,
            "num_attention_heads": 6, "num_key_value_heads": 2, "rms_norm_eps": 1e-5, "rope_theta": 5e4,
        },
        "smollm3-window": {  # other layers without RoPE than usual; the usual base
            "architectures": [NAME], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 3,
            "num_attention_heads": 5, "num_key_value_heads": 1, "head_dim": 24, "rms_norm_eps": 1e-5,
            "no_rope_layers": [0, 1, 0], "sliding_window": 10, "use_sliding_window": True, "tie_word_embeddings": False,
        },
    },
    twins={NAME: llama},
    noise={"smollm3": 1.4e-5},
    model_types={NAME: "smollm3"},
    converted={"smollm3": {"model_type": "smollm3"}},
    different=("smollm3-window",),
    mlx={"smollm3": "smollm3"},
)  # fmt: skip
