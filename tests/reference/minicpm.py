"""MiniCPM (arXiv:2404.06395) and MiniCPM-SALA in float64, by their published code; `model` is families.Reference."""

from typing import Any

import numpy as np
from reference.attention import attention, rope
from reference.ling import slopes
from reference.minimax import lightning
from reference.recurrent import F64, sigmoid
from reference.rope_scaling import scaling


def minicpm(model: Any, ids: list[int]) -> F64:
    """Logits [tok, vocabulary]."""
    c, x = model.c, model.t["model.embed_tokens.weight"][ids] * model.c["scale_emb"]
    share = c["scale_depth"] / np.sqrt(c["num_hidden_layers"])
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        x = x + share * mixer(model, model.norm(x, p + "input_layernorm"), p + "self_attn.", i)
        x = x + share * model.gated(model.norm(x, p + "post_attention_layernorm"), p + "mlp.")
    x = model.norm(x, "model.norm") / (c["hidden_size"] / c["dim_model_base"])
    return model.head(x, "model.embed_tokens.weight")


def mixer(model: Any, x: F64, p: str, i: int) -> F64:
    c, n, n_head = model.c, len(x), model.c["num_attention_heads"]
    is_lightning = c.get("mixer_types", ["minicpm4"] * (i + 1))[i] != "minicpm4"
    d = c.get("head_dim") or c["hidden_size"] // n_head
    q, k, v = (model.linear(x, f"{p}{part}_proj").reshape(n, -1, d) for part in "qkv")
    if is_lightning and c.get("qk_norm", True):
        q, k = model.norm(q, p + "q_norm"), model.norm(k, p + "k_norm")
    if c.get("lightning_use_rope" if is_lightning else "attn_use_rope", True):
        factors, magnitude = scaling(c, d, model.theta, n)
        q, k = (rope(y, np.arange(n), d, model.theta, 1.0, factors, True, magnitude) for y in (q, k))
    if is_lightning:
        scale = d**-1.0 if c.get("lightning_scale") == "1/d" else d**-0.5
        y = lightning(q * scale, k, v, np.exp(-np.array(slopes(n_head)))).reshape(n, -1)
        y = model.norm(y, p + "o_norm") if c.get("use_output_norm") else y
    else:
        y = attention(q, k, v, np.arange(n), d**-0.5).reshape(n, -1)
    if c.get("use_output_gate" if is_lightning else "attn_use_output_gate"):
        y = y * sigmoid(model.linear(x, p + ("z_proj" if is_lightning else "o_gate")))
    return model.linear(y, p + "o_proj")
