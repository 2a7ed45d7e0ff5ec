"""Command R."""

from functools import partial

from family_rows import FamilyRows
from reference.plain import Switches, plain

from hybrid.quant.ggml.errors import UnsupportedError

NAME = "CohereForCausalLM"
ROWS = FamilyRows(
    configs={
        "command-r": {
            "architectures": [NAME], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 3,
            "num_attention_heads": 6, "num_key_value_heads": 2, "layer_norm_eps": 2e-5, "rope_theta": 4e4,
            "logit_scale": 0.25,
        },
    },
    twins={NAME: partial(plain, s=Switches(("input_layernorm",), neox=False, theta=5e5, logit_scale=0.0625))},
    model_types={NAME: "cohere"},
    errors=(
        ("command-r", {"use_qk_norm": True}, UnsupportedError, "use_qk_norm = true is not supported"),
        ("command-r", {"tie_word_embeddings": False}, UnsupportedError, "tie_word_embeddings = false is not supported"),
    ),
    converted={"command-r": {"model_type": "cohere"}},
    sizes={"command-r-35b": 34.98},
)  # fmt: skip
