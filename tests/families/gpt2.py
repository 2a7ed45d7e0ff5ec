"""GPT-2."""

from family_rows import FamilyRows
from reference.gpt2 import gpt2

NAME = "GPT2LMHeadModel"
ROWS = FamilyRows(
    configs={
        "gpt2": {
            "architectures": [NAME], "n_embd": 96, "n_layer": 2, "n_head": 6, "n_positions": 512,
            "layer_norm_epsilon": 1e-5, "activation_function": "gelu_new",
        },
    },
    twins={NAME: gpt2},
    model_types={NAME: "gpt2"},
    converted={"gpt2": {"model_type": "gpt2", "n_ctx": 512}},
)  # fmt: skip
