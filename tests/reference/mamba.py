"""Mamba-1 and Mamba-2 layers and models made of them, in float64; `model` is families.Reference."""

import math
from typing import Any

import numpy as np
from reference.experts import mixture
from reference.recurrent import F64, conv1d_silu, gated_norm, mamba1_scan, mamba2_scan, mamba2_steps, silu

INNER_EPS = 1e-5  # of Zamba2's gated norm, whatever its config says
LEAST_STEP = 0.001  # Zamba2's default


def convolved(model: Any, x: F64, p: str) -> F64:
    taps = model.t[p + "conv1d.weight"][:, 0].T
    bias = model.t.get(p + "conv1d.bias", np.float64(0))
    return conv1d_silu(x, taps, bias, np.zeros((len(taps) - 1, x.shape[1])))[0]


def mamba1(model: Any, h: F64, p: str, eps: float = 0.0) -> F64:
    """A layer's output from normalized rows; eps: for norms of dt, B and C, which have weights if the checkpoint has
    them."""
    x, z = np.split(model.linear(h, p + "in_proj"), 2, axis=1)
    x = convolved(model, x, p)
    A = -np.exp(model.t[p + "A_log"])
    n = A.shape[1]
    parts = np.split(x @ model.t[p + "x_proj.weight"].T, [-2 * n, -n], axis=1)
    if eps:
        weights = [model.t.get(f"{p}{part}_layernorm.weight", 1.0) for part in ("dt", "b", "c")]
        parts = [y / np.sqrt((y * y).mean(-1, keepdims=True) + eps) * w for y, w in zip(parts, weights, strict=True)]
    dt, B, C = parts
    dt, bias = dt @ model.t[p + "dt_proj.weight"].T, model.t[p + "dt_proj.bias"]
    y, _ = mamba1_scan(x, dt, bias, A, model.t[p + "D"], B, C, z, np.zeros(A.shape))
    return model.linear(y, p + "out_proj")


def mamba2(model: Any, rows: F64, p: str, n_head: int, n_group: int, d_state: int, normed: bool) -> F64:
    """From the projected rows [z | x | B | C | dt] to the input of the output projection."""
    n_tok, groups = len(rows), n_group * d_state
    d_inner = (rows.shape[1] - n_head - 2 * groups) // 2
    z, mixed, dt = np.split(rows, [d_inner, 2 * d_inner + 2 * groups], axis=1)
    x, B, C = np.split(convolved(model, mixed, p), [d_inner, d_inner + groups], axis=1)
    A = -np.exp(model.t[p + "A_log"])
    delta, decay = mamba2_steps(dt, model.t[p + "dt_bias"], A, *step_limits(model.c))
    x, z = x.reshape(n_tok, n_head, -1), z.reshape(n_tok, n_head, -1)
    B, C = B.reshape(n_tok, n_group, -1), C.reshape(n_tok, n_group, -1)
    last = normed and model.c["architectures"] == ["FalconH1ForCausalLM"]
    last = last and model.c.get("mamba_norm_before_gate", True)
    state = np.zeros((n_head, x.shape[2], d_state))
    y, _ = mamba2_scan(x, delta, decay, model.t[p + "D"], B, C, None if last else z, state)
    if normed:
        weight, y = model.t[p + "norm.weight"].reshape(n_group, -1), y.reshape(n_tok, n_group, -1)
        eps = INNER_EPS if is_zamba2(model.c) else model.eps
        y = gated_norm(y, z.reshape(y.shape) if last else None, weight, eps, norm_first=True)
    return y.reshape(n_tok, d_inner)


def step_limits(c: dict[str, Any]) -> tuple[float, float]:
    if is_zamba2(c):
        return c.get("time_step_min", LEAST_STEP), math.inf
    low, high = c.get("time_step_limit") or (0.0, math.inf)
    return low, math.inf if isinstance(high, dict) else high


def is_zamba2(c: dict[str, Any]) -> bool:
    return c["architectures"] == ["Zamba2ForCausalLM"]


def mamba(model: Any, ids: list[int]) -> F64:
    """Mamba, Falcon-Mamba and Mamba-2, without any other layers."""
    c, x = model.c, model.t["backbone.embeddings.weight"][ids]
    for i in range(c["num_hidden_layers"]):
        p = f"backbone.layers.{i}.mixer."
        h = model.norm(x, f"backbone.layers.{i}.norm")
        if p + "x_proj.weight" in model.t:
            x = x + mamba1(model, h, p, c.get("mixer_rms_eps", 0.0))
        else:
            rows = model.linear(h, p + "in_proj")
            y = mamba2(model, rows, p, c["num_heads"], c["n_groups"], c["state_size"], True)
            x = x + model.linear(y, p + "out_proj")
    return model.head(model.norm(x, "backbone.norm_f"), "backbone.embeddings.weight")


def jamba(model: Any, ids: list[int]) -> F64:
    c, x = model.c, model.t["model.embed_tokens.weight"][ids]
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        h = model.norm(x, p + "input_layernorm")
        if p + "self_attn.q_proj.weight" in model.t:
            x = x + attention(model, h, p, 0, 0.0)
        else:
            x = x + mamba1(model, h, p + "mamba.", model.eps)
        h, m = model.norm(x, p + "pre_ff_layernorm"), p + "feed_forward."
        if m + "router.weight" not in model.t:
            x = x + model.gated(h, m)
            continue
        scores = np.exp(model.linear(h, m + "router"))
        scores = scores / scores.sum(1, keepdims=True)
        used = c["num_experts_per_tok"]
        x = x + mixture(h, scores, 0.0, used, lambda one, e, m=m: model.gated(one, f"{m}experts.{e}."), False)
    return model.head(model.norm(x, "model.final_layernorm"), "model.embed_tokens.weight")


def attention(model: Any, h: F64, p: str, n_rot: int, scale: float) -> F64:
    d = model.c["hidden_size"] // model.c["num_attention_heads"]
    q, k, v = (model.linear(h, f"{p}self_attn.{part}_proj") for part in "qkv")
    return model.linear(model.attend(q, k, v, d, n_rot, scale), p + "self_attn.o_proj")


def bamba(model: Any, ids: list[int]) -> F64:
    """Bamba, which rotates half of every head, and Granite 4 H."""
    c, granite = model.c, model.c["architectures"] == ["GraniteMoeHybridForCausalLM"]
    x = model.t["model.embed_tokens.weight"][ids] * c.get("embedding_multiplier", 1.0)
    residual, d = c.get("residual_multiplier", 1.0), c["hidden_size"] // c["num_attention_heads"]
    turned = (d if c.get("position_embedding_type") == "rope" else 0) if granite else d // 2
    last = "post_attention_layernorm" if granite else "pre_ff_layernorm"
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        h = model.norm(x, p + "input_layernorm")
        if p + "self_attn.q_proj.weight" in model.t:
            y = attention(model, h, p, turned, c.get("attention_multiplier", 1.0) if granite else 0.0)
        else:
            rows, sizes = model.linear(h, p + "mamba.in_proj"), ("mamba_n_heads", "mamba_n_groups", "mamba_d_state")
            y = mamba2(model, rows, p + "mamba.", *(c[name] for name in sizes), normed=True)
            y = model.linear(y, p + "mamba.out_proj")
        x = x + residual * y
        h = model.norm(x, p + last)
        y = granite_feed_forward(model, h, p) if granite else model.gated(h, p + "feed_forward.")
        x = x + residual * y
    norm = "model.norm" if granite else "model.final_layernorm"
    return model.head(model.norm(x, norm), "model.embed_tokens.weight") / c.get("logits_scaling", 1.0)


def granite_feed_forward(model: Any, h: F64, p: str) -> F64:
    """Experts, if there are any, and a shared expert for all tokens."""
    m = p + "shared_mlp."
    gate, up = (h @ model.t[f"{m}input_linear.weight.{part}"].T for part in ("gate", "up"))
    shared = model.linear(silu(gate) * up, m + "output_linear")
    m = p + "block_sparse_moe."
    if m + "router.layer.weight" not in model.t:
        return shared

    def expert(one: F64, e: int) -> F64:
        gate, up = (one @ model.t[f"{m}input_linear.weight.{part}.{e}"].T for part in ("gate", "up"))
        return (silu(gate) * up) @ model.t[m + "output_linear.weight"][e].T

    scores = np.exp(model.linear(h, m + "router.layer"))
    return shared + mixture(h, scores, 0.0, model.c["num_experts_per_tok"], expert)
