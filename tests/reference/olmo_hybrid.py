"""OLMo Hybrid in float64; `model` is families.Reference."""

from typing import Any

import numpy as np
from reference.attention import rope
from reference.recurrent import F64, conv1d_silu, delta_rule, gated_norm, l2_norm, sigmoid

GATED_NORM_EPS = 1e-5


def olmo_hybrid(model: Any, ids: list[int]) -> F64:
    c, x = model.c, model.t["model.embed_tokens.weight"][ids]
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        if p + "self_attn.q_proj.weight" in model.t:
            x = x + model.norm(attention(model, x, p + "self_attn."), p + "post_attention_layernorm")
            x = x + model.norm(model.gated(x, p + "mlp."), p + "post_feedforward_layernorm")
        else:
            x = x + delta_net(model, model.norm(x, p + "input_layernorm"), p + "linear_attn.")
            x = x + model.gated(model.norm(x, p + "post_attention_layernorm"), p + "mlp.")
    return model.head(model.norm(x, "model.norm"), "model.embed_tokens.weight")


def attention(model: Any, x: F64, p: str) -> F64:
    """Queries and keys are normalized over all heads, and rotated unless the config's base is null."""
    c, pos = model.c, np.arange(len(x))
    d = c["hidden_size"] // c["num_attention_heads"]
    q, k, v = (model.linear(x, f"{p}{part}_proj") for part in "qkv")
    q, k = model.norm(q, p + "q_norm"), model.norm(k, p + "k_norm")
    if (c.get("rope_parameters") or {"rope_theta": model.theta})["rope_theta"] is not None:
        q, k = (rope(part.reshape(len(x), -1, d), pos, d, model.theta, neox=True) for part in (q, k))
    return model.linear(model.attend(q, k, v, d, 0), p + "o_proj")


def delta_net(model: Any, x: F64, p: str) -> F64:
    c, n_tok, A = model.c, len(x), -np.exp(model.t[p + "A_log"])
    n_k, n_v = c.get("linear_num_key_heads") or c["num_attention_heads"], len(A)
    d_k = c.get("linear_key_head_dim") or int(0.75 * c["hidden_size"] / n_k)
    taps = joined(model.t, p + "conv1d.weight")[:, 0].T
    mixed = x @ joined(model.t, p + "qkv.weight").T
    mixed, _ = conv1d_silu(mixed, taps, np.float64(0), np.zeros((len(taps) - 1, mixed.shape[1])))
    q, k, v = np.split(mixed, [n_k * d_k, 2 * n_k * d_k], axis=1)
    q, k = (np.repeat(l2_norm(part.reshape(n_tok, n_k, d_k), 1e-6), n_v // n_k, axis=1) for part in (q, k))
    v = v.reshape(n_tok, n_v, -1)
    beta = sigmoid(model.linear(x, p + "b_proj")) * (2 if c.get("linear_allow_neg_eigval", True) else 1)
    gate = np.exp(A * np.logaddexp(0, model.linear(x, p + "a_proj") + model.t[p + "dt_bias"]))[:, :, None]
    y, _ = delta_rule(q * d_k**-0.5, k, v, gate, beta, np.zeros((n_v, d_k, v.shape[2])))
    z = model.linear(x, p + "g_proj").reshape(v.shape)
    y = gated_norm(y, z, model.t[p + "o_norm.weight"], GATED_NORM_EPS, norm_first=True)
    return model.linear(y.reshape(n_tok, -1), p + "o_proj")


def joined(tensors: dict[str, Any], name: str) -> Any:
    """The pieces `name`.0, `name`.1, ... concatenated."""
    pieces = []
    while (piece := f"{name}.{len(pieces)}") in tensors:
        pieces.append(tensors[piece])
    return np.concatenate(pieces)
