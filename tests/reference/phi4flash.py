"""Phi-4-mini-flash (arXiv:2507.06607) in float64, after its own code; `model` is families.Reference."""

import math
from typing import Any

import numpy as np
from reference.attention import attention
from reference.mamba import convolved
from reference.recurrent import F64, mamba1_scan, silu

SUB_EPS = 1e-5


def layer_norm(model: Any, x: F64, name: str) -> F64:
    x = x - x.mean(-1, keepdims=True)
    eps = model.c.get("layer_norm_eps", 1e-5)
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * model.t[name + ".weight"] + model.t[name + ".bias"]


def phi4flash(model: Any, ids: list[int]) -> F64:
    """Logits [tok, vocabulary]."""
    c, x = model.c, model.t["model.embed_tokens.weight"][ids]
    half = c["num_hidden_layers"] // 2
    scanned, kept = np.empty(0), (np.empty(0), np.empty(0))
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        h, a = layer_norm(model, x, p + "input_layernorm"), p + "attn."
        if i % 2:
            window = (c.get("sliding_window", 2047) or 0) if i < half else 0
            kept = kept if i > half + 1 else (model.linear(h, a + "Wqkv.k"), model.linear(h, a + "Wqkv.v"))
            q = model.linear(h, a + ("Wqkv" if i > half + 1 else "Wqkv.q"))
            y = model.linear(difference(model, q, *kept, i, window), a + "out_proj")
        elif i > half:
            y = model.linear(scanned * silu(model.linear(h, a + "in_proj")), a + "out_proj")
        else:
            scanned, gate = scan(model, h, a)
            y = model.linear(scanned * silu(gate), a + "out_proj")
        x = x + y
        gate, up = np.split(
            model.linear(layer_norm(model, x, p + "post_attention_layernorm"), p + "mlp.fc1"), 2, axis=1
        )
        x = x + model.linear(silu(gate) * up, p + "mlp.fc2")
    return model.head(layer_norm(model, x, "model.final_layernorm"), "model.embed_tokens.weight")


def scan(model: Any, h: F64, p: str) -> tuple[F64, F64]:
    """The scan's output for normalized rows, and its gate."""
    x, z = np.split(model.linear(h, p + "in_proj"), 2, axis=1)
    x = convolved(model, x, p)
    A = -np.exp(model.t[p + "A_log"])
    n = A.shape[1]
    dt, B, C = np.split(x @ model.t[p + "x_proj.weight"].T, [-2 * n, -n], axis=1)
    dt = dt @ model.t[p + "dt_proj.weight"].T
    open_gate = np.full_like(z, 1e3)  # silu(1000) is 1000
    y, _ = mamba1_scan(x, dt, model.t[p + "dt_proj.bias"], A, model.t[p + "D"], B, C, open_gate, np.zeros(A.shape))
    return y / 1e3, z


def difference(model: Any, q: F64, k: F64, v: F64, i: int, window: int) -> F64:
    """Heads 2 p of queries and keys give one softmax, heads 2 p + 1 the other; each is applied to the values of
    both."""
    c, n, pos = model.c, len(q), np.arange(len(q))
    d = c["hidden_size"] // c["num_attention_heads"]
    q, k, v = (x.reshape(n, -1, 2, d) for x in (q, k, v))
    first, second = (
        np.concatenate(
            [attention(q[:, :, j], k[:, :, j], v[:, :, half], pos, d**-0.5, window) for half in range(2)], axis=-1
        )
        for j in range(2)
    )
    p = f"model.layers.{i}.attn.inner_cross_attn."
    q1, k1, q2, k2 = (model.t[p + "lambda_" + name] for name in ("q1", "k1", "q2", "k2"))
    usual = 0.8 - 0.6 * math.exp(-0.3 * i)
    y = first - (np.exp(np.sum(q1 * k1)) - np.exp(np.sum(q2 * k2)) + usual) * second
    y = y / np.sqrt((y * y).mean(-1, keepdims=True) + SUB_EPS) * model.t[p + "subln.weight"] * (1 - usual)
    return y.reshape(n, -1)
