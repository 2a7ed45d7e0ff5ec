"""nanochat."""

from typing import Any

import numpy as np
from family_rows import FamilyRows
from reference.attention import attention, rope
from reference.recurrent import F64

from hybrid.quant.ggml.errors import UnsupportedError

NAME = "NanoChatForCausalLM"


def nanochat(r: Any, ids: list[int]) -> F64:
    """f64 [tok, vocabulary]"""
    c, pos = r.c, np.arange(len(ids))
    d = c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]

    def rms(x: F64) -> F64:
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + r.eps)

    x = rms(r.t["model.embed_tokens.weight"][ids])
    for i in range(c["num_hidden_layers"]):
        a, m = f"model.layers.{i}.self_attn.", f"model.layers.{i}.mlp."
        h = rms(x)
        q, k, v = (r.linear(h, f"{a}{part}_proj").reshape(len(h), -1, d) for part in "qkv")
        q, k = (rms(rope(part, -pos, d, r.theta, neox=True)) for part in (q, k))
        x = x + r.linear(attention(q, k, v, pos, d**-0.5).reshape(len(h), -1), a + "o_proj")
        x = x + r.linear(np.maximum(r.linear(rms(x), m + "fc1"), 0) ** 2, m + "fc2")
    logits, cap = r.head(rms(x), "model.embed_tokens.weight"), c["final_logit_softcapping"]
    return cap * np.tanh(logits / cap) if cap else logits


_SIZES: dict[str, Any] = {
    "architectures": [NAME], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 2,
    "hidden_act": "relu2", "tie_word_embeddings": False,
}  # fmt: skip
ROWS = FamilyRows(
    configs={
        "nanochat": {**_SIZES, "num_attention_heads": 6, "num_key_value_heads": 2},
        "nanochat-biased": {
            **_SIZES, "num_attention_heads": 3, "num_key_value_heads": 3, "head_dim": 20, "attention_bias": True,
            "rope_theta": 3e4, "rms_norm_eps": 1e-5, "final_logit_softcapping": 2.0, "tie_word_embeddings": True,
        },
    },
    repeated=("nanochat", "nanochat-biased"),
    twins={NAME: nanochat},
    defaults={NAME: {"rms_norm_eps": 1e-6, "final_logit_softcapping": 15.0}},
    model_types={NAME: "nanochat"},
    refused=("nanochat", "nanochat-biased"),
    errors=(("nanochat", {"hidden_act": "silu"}, UnsupportedError, 'hidden_act = "silu"'),),
    notes=(("nanochat", {}, "llama.cpp cannot load this file: it has no such architecture"),),
)  # fmt: skip
