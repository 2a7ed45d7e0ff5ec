"""Ministral of 2024."""

from functools import partial
from typing import Any

from family_rows import FamilyRows
from reference.plain import Switches, plain

from hybrid.quant.ggml.errors import CheckpointError

NAME = "MinistralForCausalLM"
_SIZES: dict[str, Any] = {
    "architectures": [NAME], "hidden_size": 96, "intermediate_size": 160, "rms_norm_eps": 1e-6, "rope_theta": 1e5,
    "sliding_window": 11, "tie_word_embeddings": False,
}  # fmt: skip
ROWS = FamilyRows(
    configs={
        "ministral": {
            **_SIZES, "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 20,
            "layer_types": ["full_attention", "sliding_attention", "sliding_attention"],
        },
        "ministral-local": {
            **_SIZES, "num_hidden_layers": 2, "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 32,
        },
    },
    repeated=("ministral", "ministral-local"),
    twins={NAME: partial(plain, s=Switches(window=True))},
    model_types={NAME: "ministral"},
    different=("ministral", "ministral-local"),
    errors=(("ministral", {"sliding_window": None}, CheckpointError, "no sliding_attention"),),
    notes=(("ministral", {}, "beyond 11 tokens its results differ"),),
)  # fmt: skip
