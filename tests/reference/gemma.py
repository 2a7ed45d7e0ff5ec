"""Gemma 2 and 3 in float64; `model` is families.Reference."""

from typing import Any

import numpy as np
from reference.attention import attention, rope
from reference.gemma4 import gelu
from reference.recurrent import F64
from reference.rope_scaling import scaling


def gemma(model: Any, ids: list[int]) -> F64:
    """Gemma 2, which caps scores and logits, and Gemma 3, which normalizes queries and keys."""
    c, d = model.c, model.c["head_dim"]
    x = model.t["model.embed_tokens.weight"][ids] * c["hidden_size"] ** 0.5
    three = c["architectures"] == ["Gemma3ForCausalLM"]
    usual = (0.0, 0.0) if three else (50.0, 30.0)
    cap = c.get("attn_logit_softcapping", usual[0]) or 0.0
    last_cap = c.get("final_logit_softcapping", usual[1]) or 0.0
    rope_of = (c.get("rope_parameters") or {}).get("full_attention", {})
    theta = rope_of.get("rope_theta") or c.get("rope_theta", 1e6 if three else 1e4)
    factors, magnitude = scaling(c, d, theta, len(ids))
    for i in range(c["num_hidden_layers"]):
        p, pos = f"model.layers.{i}.", np.arange(len(ids))
        h = model.norm(x, p + "input_layernorm", 1.0)
        q, k, v = (model.linear(h, f"{p}self_attn.{part}_proj").reshape(len(h), -1, d) for part in "qkv")
        if three:
            q, k = (model.norm(part, f"{p}self_attn.{n}_norm", 1.0) for part, n in ((q, "q"), (k, "k")))
        if three and model.local(i):
            near = (c.get("rope_parameters") or {}).get("sliding_attention", {})
            base = near.get("rope_theta", c.get("rope_local_base_freq", 1e4))
            q, k = (rope(part, pos, d, base, neox=True) for part in (q, k))
        else:
            q, k = (rope(part, pos, d, theta, 1.0, factors, True, magnitude) for part in (q, k))
        y = attention(q, k, v, pos, c["query_pre_attn_scalar"] ** -0.5, model.window(i), cap).reshape(len(h), -1)
        x = x + model.norm(model.linear(y, p + "self_attn.o_proj"), p + "post_attention_layernorm", 1.0)
        h, m = model.norm(x, p + "pre_feedforward_layernorm", 1.0), p + "mlp."
        y = model.linear(gelu(model.linear(h, m + "gate_proj")) * model.linear(h, m + "up_proj"), m + "down_proj")
        x = x + model.norm(y, p + "post_feedforward_layernorm", 1.0)
    y = model.head(model.norm(x, "model.norm", 1.0), "model.embed_tokens.weight")
    return last_cap * np.tanh(y / last_cap) if last_cap else y
