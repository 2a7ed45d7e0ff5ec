"""FlexOlmo."""

from functools import partial
from typing import Any

from family_rows import FamilyRows
from reference.plain import POST, Switches, plain

from hybrid.quant.ggml.errors import UnsupportedError

NAME = "FlexOlmoForCausalLM"
_SIZES: dict[str, Any] = {
    "architectures": [NAME], "hidden_size": 96, "intermediate_size": 64, "num_hidden_layers": 2, "num_experts": 7,
    "num_experts_per_tok": 3, "rms_norm_eps": 1e-6, "tie_word_embeddings": False,
}  # fmt: skip
ROWS = FamilyRows(
    configs={
        "flex-olmo": {**_SIZES, "num_attention_heads": 6, "num_key_value_heads": 2},
        "flex-olmo-normed": {
            **_SIZES, "num_attention_heads": 3, "num_key_value_heads": 1, "norm_topk_prob": True, "rope_theta": 3e4,
            "attention_bias": True,
        },
    },
    repeated=("flex-olmo", "flex-olmo-normed"),
    twins={NAME: partial(plain, s=Switches((), POST, "all", theta=5e5))},
    model_types={NAME: "flex_olmo"},
    refused=("flex-olmo", "flex-olmo-normed"),
    errors=(("flex-olmo", {"clip_qkv": 8.0}, UnsupportedError, "clip_qkv = 8.0"),),
    notes=(("flex-olmo", {}, "llama.cpp cannot load this file: it has no such architecture"),),
)  # fmt: skip
