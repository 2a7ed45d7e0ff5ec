"""VaultGemma."""

from typing import Any

import numpy as np
from family_rows import FamilyRows
from reference.attention import attention, rope
from reference.gemma4 import gelu
from reference.recurrent import F64

from hybrid.quant.ggml.errors import UnsupportedError

NAME = "VaultGemmaForCausalLM"


def vaultgemma(r: Any, ids: list[int]) -> F64:
    """f64 [tok, vocabulary]"""
    c, pos, d = r.c, np.arange(len(ids)), r.c["head_dim"]
    x = r.t["model.embed_tokens.weight"][ids] * c["hidden_size"] ** 0.5
    for i in range(c["num_hidden_layers"]):
        p, m = f"model.layers.{i}.", f"model.layers.{i}.mlp."
        local = c["layer_types"][i] == "sliding_attention" if "layer_types" in c else i % 2 == 0
        h = r.norm(x, p + "input_layernorm", 1.0)
        q, k, v = (r.linear(h, f"{p}self_attn.{part}_proj").reshape(len(h), -1, d) for part in "qkv")
        q, k = (rope(part, pos, d, r.theta, neox=True) for part in (q, k))
        scale = c["query_pre_attn_scalar"] ** -0.5
        y = attention(q, k, v, pos, scale, c["sliding_window"] if local else 0, c["attn_logit_softcapping"])
        x = x + r.linear(y.reshape(len(h), -1), p + "self_attn.o_proj")
        h = r.norm(x, p + "pre_feedforward_layernorm", 1.0)
        x = x + r.linear(gelu(r.linear(h, m + "gate_proj")) * r.linear(h, m + "up_proj"), m + "down_proj")
    cap = c["final_logit_softcapping"]
    return cap * np.tanh(r.head(r.norm(x, "model.norm", 1.0), "model.embed_tokens.weight") / cap)


_SIZES: dict[str, Any] = {
    "architectures": [NAME], "hidden_size": 96, "intermediate_size": 160, "sliding_window": 11, "rms_norm_eps": 1e-6,
}  # fmt: skip
ROWS = FamilyRows(
    configs={
        "vaultgemma": {
            **_SIZES, "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 20,
            "query_pre_attn_scalar": 20,
        },
        "vaultgemma-order": {
            **_SIZES, "num_hidden_layers": 2, "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 28,
            "query_pre_attn_scalar": 17, "layer_types": ["full_attention", "sliding_attention"], "rope_theta": 3e4,
            "attn_logit_softcapping": 5.0, "final_logit_softcapping": 3.0,
        },
    },
    repeated=("vaultgemma", "vaultgemma-order"),
    twins={NAME: vaultgemma},
    defaults={NAME: {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}},
    model_types={NAME: "vaultgemma"},
    refused=("vaultgemma", "vaultgemma-order"),
    errors=(("vaultgemma", {"attention_bias": True}, UnsupportedError, "attention_bias = true"),),
    notes=(("vaultgemma", {}, "llama.cpp cannot load this file: it has no such architecture"),),
)  # fmt: skip
