"""The text model of Muse Glimmer."""

from typing import Any

import numpy as np
from family_rows import FamilyRows
from reference.attention import attention, rope
from reference.recurrent import F64, sigmoid

from hybrid.quant.ggml.errors import CheckpointError, UnsupportedError

NAME = "MuseGlimmerForConditionalGeneration"


def muse_glimmer(r: Any, ids: list[int]) -> F64:
    """f64 [tok, vocabulary]"""
    c, d = r.c, r.c["head_dim"]
    pos, usual = np.arange(len(ids)), (c["num_hidden_layers"] - 1 - np.arange(c["num_hidden_layers"])) % 4 != 0
    theta = c["rope_parameters"]["rope_theta"]

    def rms(x: F64, eps: float = r.eps) -> F64:
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps)

    def normed(x: F64, name: str, eps: float = r.eps) -> F64:
        return rms(x, eps) * (1 + r.t[name + ".weight"])

    x = rms(r.t["model.embed_tokens.weight"][ids])
    for i, local in enumerate([kind[0] == "s" for kind in c["layer_types"]] if "layer_types" in c else usual):
        p = f"model.layers.{i}."
        h, a = normed(x, p + "input_layernorm"), p + "self_attn."
        q, k, v = (r.linear(h, f"{a}{part}_proj").reshape(len(h), -1, d) for part in "qkv")
        q, k = c["qk_scale_factor"] * rms(q), rms(k)
        if local:
            q, k = (rope(x, pos, d, theta, neox=True) for x in (q, k))
        y = attention(q, k, v, pos, d**-0.5, c["sliding_window"] if local else 0).reshape(len(h), -1)
        y = r.linear(y * sigmoid(r.linear(h, a + "gate_proj")), a + "o_proj")
        x = x + normed(y, p + "post_attention_layernorm", c["post_norm_eps"])
        y = r.gated(normed(x, p + "pre_feedforward_layernorm"), p + "mlp.")
        x = x + normed(y, p + "post_feedforward_layernorm", c["post_norm_eps"])
    logits = r.head(r.norm(x, "model.norm"), "model.embed_tokens.weight") * c["output_multiplier"]
    cap = c["final_logit_softcapping"]
    return cap * np.tanh(logits / cap)


_SIZES: dict[str, Any] = {
    "architectures": [NAME], "hidden_size": 96, "intermediate_size": 160, "sliding_window": 11, "head_dim": 20,
    "rope_parameters": {"rope_type": "default", "rope_theta": 5e5},
}  # fmt: skip
_ORDER = ["full_attention", "sliding_attention", "sliding_attention"]
ROWS = FamilyRows(
    configs={
        "muse-glimmer": {
            **_SIZES, "num_hidden_layers": 5, "num_attention_heads": 6, "num_key_value_heads": 2,
            "output_multiplier": 0.75, "tie_word_embeddings": False,
        },
        "muse-glimmer-order": {
            **_SIZES, "num_hidden_layers": 3, "num_attention_heads": 3, "num_key_value_heads": 3, "post_norm_eps": 1e-4,
            "layer_types": _ORDER, "layer_rope_theta": [0, 5e5, 5e5], "attention_bias": True, "qk_scale_factor": 1.5,
            "final_logit_softcapping": 3.0, "rms_norm_eps": 1e-6, "tie_word_embeddings": True,
        },
    },
    repeated=("muse-glimmer-order",),
    twins={NAME: muse_glimmer},
    defaults={
        NAME: {
            "rms_norm_eps": 1e-5, "qk_scale_factor": 3.87, "output_multiplier": 0.19611613513818404,
            "post_norm_eps": 1e-8, "final_logit_softcapping": 20.0,
        }
    },
    model_types={NAME: "muse_glimmer"},
    examples={
        "muse-glimmer-pictures": {
            "architectures": [NAME], "vision_config": {"hidden_size": 7}, "text_config": {
                "vocab_size": 40, "hidden_size": 18, "intermediate_size": 20, "num_hidden_layers": 5, "head_dim": 8,
                "num_attention_heads": 3, "num_key_value_heads": 1, "sliding_window": 5, "max_position_embeddings": 64,
                "rope_parameters": {"rope_type": "default", "rope_theta": 5e5},
            },
        },
    },
    converted={"muse-glimmer": {"model_type": "muse_glimmer_text"}},
    refused=("muse-glimmer-order",),
    errors=(
        ("muse-glimmer", {"hidden_activation": "gelu"}, UnsupportedError, 'hidden_activation = "gelu"'),
        ("muse-glimmer", {"layer_rope_theta": [5e5] * 5}, CheckpointError, "layer_rope_theta = .*500000 for every"),
        ("muse-glimmer", {"rope_parameters": {"rope_type": "yarn"}}, UnsupportedError, 'rope_type = "yarn"'),
        ("muse-glimmer", {"sliding_window": None}, CheckpointError, "no sliding_attention"),
    ),
    notes=(("muse-glimmer", {"post_norm_eps": 1e-5}, "llama.cpp takes post_norm_eps = 1e-08"),),
)  # fmt: skip
