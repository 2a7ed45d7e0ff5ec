"""MiniMax-01 (arXiv:2501.08313) in float64; `model` is families.Reference."""

from typing import Any

import numpy as np
from reference.attention import attention, rope
from reference.experts import mixture, softmax
from reference.recurrent import F64, sigmoid, silu
from reference.rope_scaling import scaling

LIGHTNING_EPS = 1e-6


def minimax(model: Any, ids: list[int]) -> F64:
    """Logits [tok, vocabulary]."""
    c, x = model.c, model.t["model.embed_tokens.weight"][ids]
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        lightning = p + "self_attn.qkv_proj.weight" in model.t
        h = model.norm(x, p + "input_layernorm")
        y = lightning_attention(model, h, p + "self_attn.", i) if lightning else softmax_attention(model, h, p)
        kind = ("linear_attn", "linear_attention") if lightning else ("full_attn", "full_attention")
        x = beside(c, h, y, *kind)
        h = model.norm(x, p + "post_attention_layernorm")
        x = beside(c, h, experts(model, h, p + "block_sparse_moe."), "mlp", "mlp")
    return model.head(model.norm(x, "model.norm"), "model.embed_tokens.weight")


def beside(c: dict[str, Any], h: F64, y: F64, ours: str, published: str) -> F64:
    """The residual is the normalized input, not the input itself."""
    alpha, beta = (
        c.get(f"{ours}_{name}_factor", c.get(f"layernorm_{published}_{name}", 1.0)) for name in ("alpha", "beta")
    )
    return alpha * h + beta * y


def lightning_attention(model: Any, h: F64, p: str, i: int) -> F64:
    c, n = model.c, len(h)
    n_head, n_layer = c["num_attention_heads"], c["num_hidden_layers"]
    qkv = silu(model.linear(h, p + "qkv_proj")).reshape(n, n_head, 3, -1)
    slopes = np.array([2.0 ** (-8 * (j + 1) / n_head) for j in range(n_head)])
    y = lightning(*qkv.transpose(2, 0, 1, 3), np.exp(-slopes * (1 - i / (n_layer - 1 + 1e-5) + 1e-5))).reshape(n, -1)
    y = y / np.sqrt((y * y).mean(-1, keepdims=True) + LIGHTNING_EPS) * model.t[p + "norm.weight"]
    return model.linear(sigmoid(model.linear(h, p + "output_gate")) * y, p + "out_proj")


def lightning(q: F64, k: F64, v: F64, decay: F64) -> F64:
    """[tok, head, d]; for every head S = decay S + k v^T, o = q S."""
    state, out = np.zeros((q.shape[1], q.shape[2], v.shape[2])), []
    for t in range(len(q)):
        state = decay[:, None, None] * state + k[t, :, :, None] * v[t, :, None, :]
        out.append(np.einsum("hk,hkv->hv", q[t], state))
    return np.stack(out)


def softmax_attention(model: Any, h: F64, p: str) -> F64:
    """Published models rotate the first rotary_dim values of a head, transformers' class all of them."""
    c, pos = model.c, np.arange(len(h))
    d = c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]
    n_rot = d if c["architectures"] == ["MiniMaxForCausalLM"] else c.get("rotary_dim", d)
    q, k, v = (model.linear(h, f"{p}self_attn.{part}_proj").reshape(len(h), -1, d) for part in "qkv")
    factors, magnitude = scaling(c, n_rot, model.theta, len(h))
    q, k = (rope(x, pos, n_rot, model.theta, 1.0, factors, True, magnitude) for x in (q, k))
    y = attention(q, k, v, pos, d**-0.5, c.get("sliding_window") or 0)
    return model.linear(y.reshape(len(h), -1), p + "self_attn.o_proj")


def experts(model: Any, h: F64, m: str) -> F64:
    return mixture(
        h,
        softmax(model.linear(h, m + "gate")),
        0.0,
        model.c["num_experts_per_tok"],
        lambda one, e: model.gated(one, f"{m}experts.{e}.", "w1", "w3", "w2"),
        True,
    )
