"""The text part of Llama 4 in float64; `model` is families.Reference."""

from typing import Any

import numpy as np
from reference.attention import attention, rope
from reference.gemma4 import plain
from reference.recurrent import F64, sigmoid, silu
from reference.rope_scaling import scaling


def llama4(model: Any, ids: list[int]) -> F64:
    """Logits [tok, vocabulary]."""
    c, n = model.c, model.c["num_hidden_layers"]
    turned = c.get("no_rope_layers") or [(i + 1) % c.get("no_rope_layer_interval", 4) != 0 for i in range(n)]
    kinds = c.get("layer_types") or ["chunked_attention" if is_turned else "" for is_turned in turned]
    x = model.t["model.embed_tokens.weight"][ids]
    for i in range(n):
        p = f"model.layers.{i}."
        chunk = c.get("attention_chunk_size", 8192) if kinds[i] == "chunked_attention" else 0
        x = x + attend(model, model.norm(x, p + "input_layernorm"), p + "self_attn.", bool(turned[i]), chunk)
        h, p = model.norm(x, p + "post_attention_layernorm"), p + "feed_forward."
        x = x + (experts(model, h, p) if p + "router.weight" in model.t else model.gated(h, p))
    return model.head(model.norm(x, "model.norm"), "model.embed_tokens.weight")


def attend(model: Any, h: F64, p: str, turned: bool, chunk: int) -> F64:
    c, d, pos = model.c, model.c["head_dim"], np.arange(len(h))
    q, k, v = (model.linear(h, f"{p}{part}_proj").reshape(len(h), -1, d) for part in "qkv")
    if turned:
        theta = c.get("rope_theta", 5e5)
        factors, magnitude = scaling(c, d, theta, len(h))
        q, k = (rope(x, pos, d, theta, 1.0, factors, False, magnitude) for x in (q, k))
        if c.get("use_qk_norm", True):
            q, k = plain(q, model.eps), plain(k, model.eps)
    elif c.get("attn_temperature_tuning", True):
        steps = np.floor((pos + 1) / c.get("floor_scale", 8192))
        q = q * (1 + c.get("attn_scale", 0.1) * np.log1p(steps))[:, None, None]
    y = attention(q, k, v, pos, d**-0.5, chunk, aligned=chunk > 0)
    return model.linear(y.reshape(len(h), -1), p + "o_proj")


def experts(model: Any, h: F64, p: str) -> F64:
    """The best experts by the router's logits; their input is the token times the sigmoid of its logit."""
    logits = model.linear(h, p + "router")
    out = model.gated(h, p + "shared_expert.")
    for t, row in enumerate(logits):
        for e in np.argsort(-row, kind="stable")[: model.c.get("num_experts_per_tok", 1)]:
            gate, up = np.split((sigmoid(row[e]) * h[t]) @ model.t[p + "experts.gate_up_proj"][e], 2)
            out[t] += (silu(gate) * up) @ model.t[p + "experts.down_proj"][e]
    return out
