"""Jais 2."""

from functools import partial
from typing import Any

from family_rows import FamilyRows
from reference.plain import Switches, plain

from hybrid.quant.ggml.errors import UnsupportedError

NAME = "Jais2ForCausalLM"
_SIZES: dict[str, Any] = {
    "architectures": [NAME], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 2,
    "hidden_act": "relu2", "layer_norm_eps": 1e-5, "tie_word_embeddings": False,
}  # fmt: skip
ROWS = FamilyRows(
    configs={
        "jais2": {**_SIZES, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 20, "rope_theta": 5e5},
        "jais2-plain": {
            **_SIZES, "num_attention_heads": 3, "num_key_value_heads": 1, "attention_bias": False, "mlp_bias": False,
            "tie_word_embeddings": True, "layer_norm_eps": 1e-4,
        },
    },
    repeated=("jais2", "jais2-plain"),
    twins={NAME: partial(plain, s=Switches())},
    model_types={NAME: "jais2"},
    converted={"jais2": {"model_type": "jais2"}},
    refused=("jais2-plain",),
    errors=(("jais2", {"hidden_act": "silu"}, UnsupportedError, 'hidden_act = "silu"'),),
    notes=(("jais2", {"mlp_bias": False}, "all matrices of layers have biases"),),
)  # fmt: skip
