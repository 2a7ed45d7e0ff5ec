"""Kimi Linear (arXiv:2510.26692) in float64; `model` is families.Reference. Keys and values of latent attention
(arXiv:2405.04434) are made from the latent vectors, as the paper first says it."""

from typing import Any

import numpy as np
from reference.attention import attention
from reference.experts import mixture
from reference.recurrent import F64, conv1d, delta_rule, gated_norm, l2_norm, sigmoid, silu, softplus

LATENT_EPS = 1e-6


def rms(x: F64, weight: F64, eps: float) -> F64:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def kimi_linear(model: Any, ids: list[int]) -> F64:
    """Logits [tok, vocabulary]."""
    c, x = model.c, model.t["model.embed_tokens.weight"][ids]
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        h = model.norm(x, p + "input_layernorm")
        latent = p + "self_attn.kv_a_layernorm.weight" in model.t
        x = x + (latent_attention(model, h, p + "self_attn.") if latent else kda(model, h, p + "self_attn."))
        h = model.norm(x, p + "post_attention_layernorm")
        x = x + feed_forward(model, h, p)
    return model.head(model.norm(x, "model.norm"), "model.embed_tokens.weight")


def kda(model: Any, x: F64, p: str) -> F64:
    """A layer with the delta rule, one gate for each channel of the keys."""
    n = len(x)
    shape = (n, len(model.t[p + "b_proj.weight"]), len(model.t[p + "o_norm.weight"]))
    q, k, v = (
        convolved(model, model.linear(x, f"{p}{part}_proj"), f"{p}{part}_conv1d").reshape(shape) for part in "qkv"
    )
    q, k = l2_norm(q, 1e-6) / np.sqrt(shape[2]), l2_norm(k, 1e-6)
    f = (model.linear(model.linear(x, p + "f_a_proj"), p + "f_b_proj") + model.t[p + "dt_bias"]).reshape(shape)
    decay = np.exp(-np.exp(model.t[p + "A_log"].reshape(-1, 1)) * softplus(f))
    beta = sigmoid(model.linear(x, p + "b_proj"))
    y, _ = delta_rule(q, k, v, decay, beta, np.zeros((shape[1], shape[2], shape[2])))
    gate = model.linear(model.linear(x, p + "g_a_proj"), p + "g_b_proj").reshape(shape)
    y = gated_norm(y, gate, model.t[p + "o_norm.weight"], model.eps, norm_first=True, act="sigmoid")
    return model.linear(y.reshape(n, -1), p + "o_proj")


def convolved(model: Any, x: F64, name: str) -> F64:
    taps = model.t[name + ".weight"][:, 0].T
    return silu(conv1d(x, taps, np.zeros(x.shape[1]), np.zeros((len(taps) - 1, x.shape[1])))[0])


def latent_attention(model: Any, x: F64, p: str) -> F64:
    """Keys and values of all heads, made from one vector of a token, beside a key that they share."""
    c, n, n_head = model.c, len(x), model.c["num_attention_heads"]
    rank, d_nope, d_shared, d_value = (
        c[name] for name in ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
    )
    if p + "q_a_proj.weight" in model.t:
        low = rms(model.linear(x, p + "q_a_proj"), model.t[p + "q_a_layernorm.weight"], LATENT_EPS)
        q = model.linear(low, p + "q_b_proj")
    else:
        q = model.linear(x, p + "q_proj")
    both = model.linear(x, p + "kv_a_proj_with_mqa")
    latent = rms(both[:, :rank], model.t[p + "kv_a_layernorm.weight"], LATENT_EPS)
    made = (latent @ up_projection(model, p, n_head).T).reshape(n, n_head, d_nope + d_value)
    shared = np.repeat(both[:, None, rank:], n_head, axis=1)
    k = np.concatenate([made[:, :, :d_nope], shared], axis=2)
    y = attention(q.reshape(n, n_head, -1), k, made[:, :, d_nope:], np.arange(n), (d_nope + d_shared) ** -0.5)
    return model.linear(y.reshape(n, -1), p + "o_proj")


def up_projection(model: Any, p: str, n_head: int) -> F64:
    """[head x (d_nope + d_value), rank]; random checkpoints hold it in the parts that the converter takes it into."""
    name = p + "kv_b_proj.weight"
    if name in model.t:
        return model.t[name]
    return np.concatenate([model.t[f"{name}.{i}"] for i in range(2 * n_head)])


def feed_forward(model: Any, x: F64, p: str) -> F64:
    c, m = model.c, p + "block_sparse_moe."
    if m + "gate.weight" not in model.t:
        return model.gated(x, p + "mlp.")

    def expert(one: F64, e: int) -> F64:
        return model.gated(one, f"{m}experts.{e}.", "w1", "w3", "w2")

    y = mixture(
        x, sigmoid(model.linear(x, m + "gate")), model.t[m + "gate.e_score_correction_bias"],
        c["num_experts_per_token"], expert, c.get("moe_renormalize", True),
        (c.get("num_expert_group", 1), c.get("topk_group", 1)),
    )  # fmt: skip
    y = y * c.get("routed_scaling_factor", 1.0)
    return y + model.gated(x, m + "shared_experts.") if c.get("num_shared_experts") else y
