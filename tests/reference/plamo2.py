"""PLaMo 2 (arXiv:2509.04897) in float64, after its own code; `model` is families.Reference."""

from typing import Any

import numpy as np
from reference.attention import attention, rope
from reference.mamba import convolved
from reference.recurrent import F64, mamba2_scan, mamba2_steps, silu

HEAD_EPS = 1e-6


def rms(x: F64, weight: F64, eps: float) -> F64:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def plamo2(model: Any, ids: list[int]) -> F64:
    """Logits [tok, vocabulary]. The stored weights of norms lack the constants added to them."""
    c, x = model.c, model.t["model.embed_tokens.weight"][ids]
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.layers.{i}."
        h = model.norm(x, p + "pre_mixer_norm", 1.0)
        y = mamba(model, h, p + "mixer.") if p + "mixer.A_log" in model.t else softmax_attention(model, h, p, i)
        x = x + model.norm(y, p + "post_mixer_norm", 1 / 5)
        h = model.norm(x, p + "pre_mlp_norm", 1.0)
        gate, up = np.split(model.linear(h, p + "mlp.gate_up_proj"), 2, axis=1)
        x = x + model.norm(model.linear(silu(gate) * up, p + "mlp.down_proj"), p + "post_mlp_norm", 1 / 5**1.5)
    return model.head(model.norm(x, "model.norm", 1.0), "model.embed_tokens.weight")


def mamba(model: Any, h: F64, p: str) -> F64:
    c, n = model.c, len(h)
    n_head, d, n_state = c["mamba_num_heads"], c["hidden_size_per_head"], c["mamba_d_state"]
    z, x = model.linear(h, p + "in_proj").reshape(n, n_head, 2, d).transpose(2, 0, 1, 3)
    x = convolved(model, x.reshape(n, -1), p)
    parts = np.split(model.linear(x, p + "bcdt_proj"), [n_state, 2 * n_state], axis=1)
    B, C, dt = (
        rms(part, model.t[f"{p}{name}_norm_weight"], model.eps)
        for part, name in zip(parts, ("B", "C", "dt"), strict=True)
    )
    A = -np.exp(model.t[p + "A_log"])
    delta, decay = mamba2_steps(model.linear(dt, p + "dt_proj"), model.t[p + "dt_bias"], A, 0.0, np.inf)
    state = np.zeros((n_head, d, n_state))
    x = x.reshape(n, n_head, d)
    y, _ = mamba2_scan(x, delta, decay, model.t[p + "D"], B[:, None], C[:, None], z, state)
    return model.linear(y.reshape(n, -1), p + "out_proj")


def softmax_attention(model: Any, h: F64, p: str, i: int) -> F64:
    c, n, pos = model.c, len(h), np.arange(len(h))
    n_head, n_kv, d = c["num_attention_heads"], c["num_key_value_heads"], c["hidden_size_per_head"]
    heads = model.linear(h, p + "mixer.qkv_proj").reshape(n, n_head + 2 * n_kv, d)
    q, k, v = np.split(heads, [n_head, n_head + n_kv], axis=1)
    q, k = (
        rope(rms(x, model.t[f"{p}mixer.{name}_weight"], HEAD_EPS), pos, d, model.theta, neox=True)
        for x, name in ((q, "q"), (k, "k"))
    )
    window = 0 if i in (c.get("full_attention_idx") or []) else c["attention_window_size"] + 1
    return model.linear(attention(q, k, v, pos, d**-0.5, window).reshape(n, -1), p + "mixer.o_proj")
