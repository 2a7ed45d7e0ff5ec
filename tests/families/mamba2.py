"""Mamba-2."""

from family_rows import FamilyRows
from reference.mamba import mamba

NAME = "Mamba2ForCausalLM"
ROWS = FamilyRows(
    configs={
        # unpublished, but runs in transformers: bounds of step sizes that the random weights exceed
        "mamba2-biased": {
            "architectures": [NAME], "model_type": "mamba2", "hidden_size": 72, "num_hidden_layers": 3, "expand": 2,
            "num_heads": 9, "head_dim": 16, "n_groups": 3, "state_size": 11, "conv_kernel": 3,
            "layer_norm_epsilon": 2e-4, "use_bias": True, "use_conv_bias": False, "tie_word_embeddings": False,
            "norm_before_gate": True, "time_step_limit": [0.09, 0.4],
        },
    },
    twins={NAME: mamba},
    noise={"mamba2": 1.1e-5},
    unchecked=("mamba2",),
    model_types={NAME: "mamba2"},
    examples={
        "mamba2": {
            "architectures": [NAME], "hidden_size": 12, "state_size": 5, "num_hidden_layers": 2, "expand": 2,
            "conv_kernel": 3, "num_heads": 4, "head_dim": 6, "n_groups": 2, "tie_word_embeddings": False,
        },
    },
    refused=("mamba2-biased",),
    mlx={"mamba2": "mamba2-biased"},
)  # fmt: skip
