"""xLSTM in float64, token by token, from the formulas of arXiv:2405.04517: slow and obvious. `model` is
families.Reference."""

from typing import Any

import numpy as np
from reference.recurrent import F64, sigmoid, silu, softplus


def mlstm_gates(i: F64, f: F64, cap: float, m: F64) -> tuple[F64, F64, F64, F64]:
    """i, f [tok, head] with their biases, m [head] -> gain, decay, low [tok, head], m after."""
    i, f = (cap * np.tanh(gate.astype(np.float64) / cap) for gate in (i, f))
    gain, decay, low = (np.empty(i.shape) for _ in range(3))
    for t in range(len(i)):
        carried = m - softplus(-f[t])
        m = np.maximum(carried, i[t])
        gain[t], decay[t], low[t] = np.exp(i[t] - m), np.exp(carried - m), np.exp(-m)
    return gain, decay, low, m


def head_norm(h: F64, weight: F64, eps: float) -> F64:
    """h [tok, head, d], weight [head, d]: layer norm of every head."""
    centred = h - h.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + eps) * weight


def mlstm(q: F64, k: F64, v: F64, i: F64, f: F64, cap: float, eps: float) -> F64:
    """q, k [tok, head, d_k], v [tok, head, d_v], i and f [tok, head] -> h [tok, head, d_v]"""
    gain, decay, low, _ = mlstm_gates(i, f, cap, np.zeros(i.shape[1]))
    h = np.empty(v.shape)
    for head in range(v.shape[1]):
        C, n = np.zeros((k.shape[2], v.shape[2])), np.zeros(k.shape[2])
        for t in range(len(v)):
            C = decay[t, head] * C + gain[t, head] * np.outer(k[t, head], v[t, head])
            n = decay[t, head] * n + gain[t, head] * k[t, head]
            query = q[t, head] * k.shape[2] ** -0.5
            h[t, head] = query @ C / (max(abs(query @ n), low[t, head]) + eps)
    return h


def xlstm(model: Any, ids: list[int]) -> F64:
    c, x = model.c, model.t["backbone.embeddings.weight"][ids]
    model.eps, n_head, n_tok = c["norm_eps"], c["num_heads"], len(ids)
    for layer in range(c["num_hidden_layers"]):
        p = f"backbone.blocks.{layer}."
        y, m = model.norm(x, p + "norm_mlstm"), p + "mlstm_layer."
        q, k, v = (model.linear(y, m + part).reshape(n_tok, n_head, -1) for part in "qkv")
        i, f = (model.linear(y, f"{m}{gate}gate_preact") for gate in "if")
        h = mlstm(q, k, v, i, f, c["gate_soft_cap"], c["eps"])
        h = head_norm(h, model.t[m + "multihead_norm.weight"].reshape(n_head, -1), c["norm_eps"]).reshape(n_tok, -1)
        x = x + model.linear(sigmoid(model.linear(y, m + "ogate_preact")) * h, m + "out_proj")
        y, m = model.norm(x, p + "norm_ffn"), p + "ffn."
        x = x + model.linear(
            silu(model.linear(y, m + "proj_up_gate")) * model.linear(y, m + "proj_up"), m + "proj_down"
        )
    cap = c["output_logit_soft_cap"]
    return cap * np.tanh(model.head(model.norm(x, "backbone.out_norm"), "backbone.embeddings.weight") / cap)
