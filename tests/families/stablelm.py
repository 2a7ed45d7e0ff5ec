"""StableLM 2."""

from functools import partial

from family_rows import FamilyRows
from reference.plain import Switches, plain

NAME = "StableLmForCausalLM"
ROWS = FamilyRows(
    configs={
        "stablelm": {
            "architectures": [NAME], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 2,
            "num_attention_heads": 3, "num_key_value_heads": 1, "layer_norm_eps": 1e-5, "use_qkv_bias": True,
            "tie_word_embeddings": False,
        },
    },
    twins={NAME: partial(plain, s=Switches(part=0.25))},
    model_types={NAME: "stablelm"},
    alike={"StableLMEpochForCausalLM": NAME},
)  # fmt: skip
