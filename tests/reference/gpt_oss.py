"""gpt-oss in float64."""

from typing import Any

import numpy as np
from reference.attention import attention, rope
from reference.experts import mixture
from reference.recurrent import F64, sigmoid
from reference.rope_scaling import scaling


def gpt_oss(model: Any, ids: list[int]) -> F64:
    c = model.c
    x = model.t["model.embed_tokens.weight"][ids]
    kinds = c.get("layer_types") or ["sliding_attention", "full_attention"] * c["num_hidden_layers"]
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        window = c["sliding_window"] if kinds[i] == "sliding_attention" else 0
        x = x + _attention(model, model.norm(x, p + "input_layernorm"), p + "self_attn.", window)
        x = x + _experts(model, model.norm(x, p + "post_attention_layernorm"), p + "mlp.")
    return model.head(model.norm(x, "model.norm"), "model.embed_tokens.weight")


def _attention(model: Any, x: F64, p: str, window: int) -> F64:
    c, d, pos = model.c, model.c["head_dim"], np.arange(len(x))
    q, k, v = (model.linear(x, f"{p}{part}_proj").reshape(len(x), -1, d) for part in "qkv")
    factors, magnitude = scaling(c, d, model.theta, len(x))
    q, k = (rope(part, pos, d, model.theta, 1.0, factors, True, magnitude) for part in (q, k))
    y = attention(q, k, v, pos, d**-0.5, window, sinks=model.t[p + "sinks"])
    return model.linear(y.reshape(len(x), -1), p + "o_proj")


def _experts(model: Any, x: F64, p: str) -> F64:
    """The softmax is over the selected experts' logits only; up and gate alternate in the columns of one matrix."""
    t, alpha, limit = model.t, model.c.get("swiglu_alpha", 1.702), model.c.get("swiglu_limit", 7.0)

    def expert(one: F64, e: int) -> F64:
        both = one @ t[p + "experts.gate_up_proj"][e] + t[p + "experts.gate_up_proj_bias"][e]
        gate, up = np.minimum(both[:, ::2], limit), np.clip(both[:, 1::2], -limit, limit)
        y = gate * sigmoid(alpha * gate) * (up + 1)
        return y @ t[p + "experts.down_proj"][e] + t[p + "experts.down_proj_bias"][e]

    logits = model.linear(x, p + "router")
    return mixture(x, np.exp(logits - logits.max(-1, keepdims=True)), 0.0, model.c["num_experts_per_tok"], expert)
