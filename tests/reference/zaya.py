"""ZAYA1 in float64; `model` is families.Reference."""

from typing import Any

import numpy as np
from reference.attention import attention, rope
from reference.convolved_attention import convolved, delayed, means, unit_length
from reference.experts import softmax
from reference.recurrent import F64, silu
from reference.rope_scaling import scaling
from reference.zamba import gelu_erf

USUAL = {
    "hybrid": {"rope_theta": 5e6, "partial_rotary_factor": 0.5},
    "hybrid_sliding": {"rope_theta": 1e4, "partial_rotary_factor": 0.5},
}


def zaya(model: Any, ids: list[int]) -> F64:
    c, t = model.c, model.t
    x = t["model.embed_tokens.weight"][ids]
    x = (x + t["model.input_hidden_states_bias"]) * t["model.input_hidden_states_scale"]
    states: F64 | None = None
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        y = _attention(model, model.norm(x, p + "input_layernorm"), i)
        x = _residual(t, x, y, p + "post_attention_residual_scale.")
        y, states = _experts(model, model.norm(x, p + "post_attention_layernorm"), p + "mlp.", states)
        x = _residual(t, x, y, p + "post_mlp_residual_scale.")
    return model.head(model.norm(x, "model.norm"), "model.embed_tokens.weight") + t.get("lm_head.bias", 0.0)


def _residual(t: dict[str, F64], x: F64, y: F64, p: str) -> F64:
    y = (y + t[p + "hidden_states_bias"]) * t[p + "hidden_states_scale"]
    return y + (x + t[p + "residual_bias"]) * t[p + "residual_scale"]


def _attention(model: Any, x: F64, i: int) -> F64:
    c, t, p = model.c, model.t, f"model.layers.{i}.self_attn."
    d = c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]
    kind, pos = (c.get("layer_types") or ["hybrid"] * (i + 1))[i], np.arange(len(x))
    qkv = p + "qkv_proj."
    q, k = (model.linear(x, f"{qkv}{part}_proj") for part in "qk")
    n_q, n_heads = q.shape[1], (q.shape[1] + k.shape[1]) // d
    depthwise, grouped = (
        (t[f"{qkv}conv_qk_{name}.weight"], t[f"{qkv}conv_qk_{name}.bias"]) for name in ("depthwise", "grouped")
    )
    mixed = convolved(np.concatenate([q, k], axis=1), depthwise, grouped, n_heads).reshape(len(x), n_heads, d)
    for_q, for_k = means(q.reshape(len(x), -1, d), k.reshape(len(x), -1, d))
    queries = unit_length(mixed[:, : n_q // d] + for_q)
    keys = unit_length(mixed[:, n_q // d :] + for_k) * t[p + "qk_norm.temp"][:, None]
    current, before = (model.linear(x, f"{qkv}v_proj_{part}") for part in ("current", "delayed"))
    v = delayed(current, before, t.get(f"{qkv}v_proj_delayed.bias", 0.0)).reshape(len(x), -1, d)
    turned = (c.get("rope_parameters") or USUAL)[kind]
    n_rot = int(d * turned.get("partial_rotary_factor", 1.0))
    factors, magnitude = scaling({"rope_parameters": turned}, n_rot, turned["rope_theta"], len(pos))
    queries, keys = (
        rope(part, pos, n_rot, turned["rope_theta"], 1.0, factors, True, magnitude) for part in (queries, keys)
    )
    window = c["sliding_window"] if kind == "hybrid_sliding" else 0
    y = attention(queries, keys, v, pos, d**-0.5, window).reshape(len(x), -1)
    return model.linear(y, p + "o_proj")


def _experts(model: Any, x: F64, p: str, states: F64 | None) -> tuple[F64, F64]:
    """Output of the experts, and the router's states for the next layer."""
    t, g = model.t, p + "gate."
    r = model.linear(x, g + "down_proj")
    if states is not None:
        r = r + states * t[g + "router_states_scale"]
    h = model.norm(r, g + "router_mlp.norm")
    for part in ("fc1", "fc2"):
        h = gelu_erf(model.linear(h, f"{g}router_mlp.{part}"))
    scores = softmax(model.linear(h, g + "router_mlp.out_proj"))
    biases = t[g + "balancing_biases"].copy()
    biases[-1] = -1.0  # as in transformers 5.23
    out, n_expert = np.zeros_like(x), scores.shape[1] - 1
    for i, e in enumerate(np.argmax(scores + biases, axis=1)):
        if e < n_expert:
            gate, up = (x[i] @ _gate_or_up(t, p, e, half).T for half in range(2))
            out[i] = scores[i, e] * (t[p + "experts.down_proj"][e] @ (silu(gate) * up))
    return out, r


def _gate_or_up(t: dict[str, F64], p: str, e: int, half: int) -> F64:
    """Checkpoints have one tensor for all; after the converter there are its parts."""
    whole = t.get(p + "experts.gate_up_proj")
    if whole is None:
        return t[f"{p}experts.gate_up_proj.{2 * e + half}"]
    return np.split(whole[e], 2)[half]
