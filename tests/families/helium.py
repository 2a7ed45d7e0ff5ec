"""Helium."""

from functools import partial
from typing import Any

from family_rows import FamilyRows
from reference.plain import Switches, plain

from hybrid.quant.ggml.errors import UnsupportedError

NAME = "HeliumForCausalLM"
_SIZES: dict[str, Any] = {
    "architectures": [NAME], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 2,
    "tie_word_embeddings": False,
}  # fmt: skip
ROWS = FamilyRows(
    configs={
        "helium": {**_SIZES, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 16},
        "helium-biased": {
            **_SIZES, "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 32, "attention_bias": True,
            "mlp_bias": True, "rope_theta": 3e4, "rms_norm_eps": 1e-5,
        },
    },
    repeated=("helium", "helium-biased"),
    twins={NAME: partial(plain, s=Switches(neox=False, theta=1e5))},
    defaults={NAME: {"rms_norm_eps": 1e-8}},
    model_types={NAME: "helium"},
    errors=(("helium", {"hidden_act": "gelu"}, UnsupportedError, "hidden_act"),),
)  # fmt: skip
