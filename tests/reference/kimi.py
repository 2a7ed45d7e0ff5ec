"""Kimi Linear (arXiv:2510.26692) and Ling 3.0 in float64; `model` is families.Reference. Keys and values of latent
attention (arXiv:2405.04434) are computed from the latent vectors, as in the paper's first formulation."""

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


def ling(model: Any, ids: list[int]) -> F64:
    """Logits [tok, vocabulary] of Ling 3.0."""
    x = model.t["model.word_embeddings.weight"][ids]
    n = model.c["qk_rope_head_dim"]
    frequencies = model.c["rope_theta"] ** (-np.arange(0, n, 2) / n)
    for i in range(model.c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        h = model.norm(x, p + "input_layernorm")
        latent = p + "attention.kv_a_layernorm.weight" in model.t
        x = x + (
            latent_attention(model, h, p + "attention.", frequencies) if latent else kda(model, h, p + "attention.")
        )
        h = model.norm(x, p + "post_attention_layernorm")
        x = x + feed_forward(model, h, p)
    return model.head(model.norm(x, "model.norm"), "model.word_embeddings.weight")


def kda(model: Any, x: F64, p: str, lowest: float | None = None) -> F64:
    """A layer with the delta rule, with one gate per channel of the keys. lowest: logarithm of the lowest gate; None:
    Ling's if f is one matrix, otherwise no limit."""
    n = len(x)
    low_rank, out = p + "f_a_proj.weight" in model.t, "o_proj" if p + "o_proj.weight" in model.t else "dense"
    shape = (n, len(model.t[p + "b_proj.weight"]), len(model.t[p + "o_norm.weight"]))
    q, k, v = (
        convolved(model, model.linear(x, f"{p}{part}_proj"), f"{p}{part}_conv1d").reshape(shape) for part in "qkv"
    )
    q, k = l2_norm(q, 1e-6) / np.sqrt(shape[2]), l2_norm(k, 1e-6)
    f, gate = (
        model.linear(model.linear(x, f"{p}{part}_a_proj"), f"{p}{part}_b_proj")
        if low_rank
        else model.linear(x, f"{p}{part}_proj")
        for part in "fg"
    )
    f, rate = (f + model.t[p + "dt_bias"]).reshape(shape), np.exp(model.t[p + "A_log"].reshape(-1, 1))
    lowest = model.c.get("kda_lower_bound", -5.0) if lowest is None and not low_rank else lowest
    decay = np.exp(-rate * softplus(f) if lowest is None else lowest * sigmoid(rate * f))
    beta = sigmoid(model.linear(x, p + "b_proj"))
    y, _ = delta_rule(q, k, v, decay, beta, np.zeros((shape[1], shape[2], shape[2])))
    y = gated_norm(y, gate.reshape(shape), model.t[p + "o_norm.weight"], model.eps, norm_first=True, act="sigmoid")
    return model.linear(y.reshape(n, -1), p + out)


def convolved(model: Any, x: F64, name: str) -> F64:
    taps = model.t[name + ".weight"][:, 0].T
    return silu(conv1d(x, taps, np.zeros(x.shape[1]), np.zeros((len(taps) - 1, x.shape[1])))[0])


def latent_attention(
    model: Any, x: F64, p: str, frequencies: F64 | None = None, growth: float = 1.0, stretch: F64 | None = None
) -> F64:
    """Attention with keys and values of all heads from one vector per token, and a key shared by all heads, rotated
    with these frequencies (None: not rotated). Scores are multiplied with `growth`, queries with `stretch` [tok]."""
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
    q, shared = q.reshape(n, n_head, -1), both[:, None, rank:]
    if frequencies is not None:
        q[:, :, d_nope:], shared = (turned(part, frequencies) for part in (q[:, :, d_nope:], shared))
    q = q if stretch is None else q * stretch[:, None, None]
    k = np.concatenate([made[:, :, :d_nope], np.repeat(shared, n_head, axis=1)], axis=2)
    y = attention(q, k, made[:, :, d_nope:], np.arange(n), growth * (d_nope + d_shared) ** -0.5)
    if p + "g_proj.weight" in model.t:
        y = y * sigmoid(model.linear(x, p + "g_proj"))[:, :, None]
    return model.linear(y.reshape(n, -1), p + ("o_proj" if p + "o_proj.weight" in model.t else "dense"))


def turned(x: F64, frequencies: F64) -> F64:
    """x [tok, head, n], rotated in pairs of neighbours."""
    angle = np.arange(len(x))[:, None] * frequencies
    z = (x[:, :, 0::2] + 1j * x[:, :, 1::2]) * np.exp(1j * angle)[:, None]
    return np.stack([z.real, z.imag], axis=3).reshape(x.shape)


def up_projection(model: Any, p: str, n_head: int) -> F64:
    """[head x (d_nope + d_value), rank]; random checkpoints hold it in the parts into which the converter splits it."""
    name = p + "kv_b_proj.weight"
    if name in model.t:
        return model.t[name]
    return np.concatenate([model.t[f"{name}.{i}"] for i in range(2 * n_head)])


def feed_forward(model: Any, x: F64, p: str) -> F64:
    c, m = model.c, p + ("block_sparse_moe." if p + "block_sparse_moe.gate.weight" in model.t else "mlp.")
    if m + "gate.weight" not in model.t:
        return model.gated(x, m)
    names = ("w1", "w3", "w2") if m.endswith("sparse_moe.") else ("gate_proj", "up_proj", "down_proj")
    bias = model.t.get(m + "gate.expert_bias", model.t.get(m + "gate.e_score_correction_bias"))

    def expert(one: F64, e: int) -> F64:
        return model.gated(one, f"{m}experts.{e}.", *names)

    y = mixture(
        x,
        sigmoid(model.linear(x, m + "gate")),
        bias,
        c["num_experts_per_token"],
        expert,
        c.get("moe_renormalize", True),
        (c.get("num_expert_group", 1), c.get("topk_group", 1)),
    )
    y = y * c.get("routed_scaling_factor", 1.0)
    return y + model.gated(x, m + "shared_experts.") if c.get("num_shared_experts") else y
