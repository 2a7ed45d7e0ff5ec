"""Inkling in float64; `model` is families.Reference."""

from typing import Any

import numpy as np
from reference.attention import attention, distance_bias
from reference.experts import choose
from reference.recurrent import F64, conv1d, sigmoid, silu


def inkling(model: Any, ids: list[int]) -> F64:
    c, t = model.c, model.t
    x = model.norm(t["model.embed_tokens.weight"][ids], "model.embed_tokens.embed_norm")
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        y = _attention(model, model.norm(x, p + "input_layernorm"), i)
        x = x + _convolved(t, y, p + "attn_sconv")
        y = model.norm(x, p + "post_attention_layernorm")
        routed = p + "mlp.gate.weight" in t
        y = _experts(model, y, p + "mlp.") if routed else model.gated(y, p + "mlp.") * t[p + "mlp.global_scale"]
        x = x + _convolved(t, y, p + "mlp_sconv")
    return model.linear(model.norm(x, "model.norm") / c["logits_mup_width_multiplier"], "lm_head")


def _convolved(t: dict[str, F64], x: F64, name: str) -> F64:
    taps = t[name + ".conv1d.weight"][:, 0].T
    return x + conv1d(x, taps, np.zeros(x.shape[1]), np.zeros((len(taps) - 1, x.shape[1])))[0]


def _attention(model: Any, x: F64, i: int) -> F64:
    c, t, p, pos = model.c, model.t, f"model.layers.{i}.self_attn.", np.arange(len(x))
    local = c["layer_types"][i] == "hybrid_sliding" if "layer_types" in c else i in c["local_layer_ids"]
    d = c["swa_head_dim" if local else "head_dim"]
    q, k, v, r = (model.linear(x, f"{p}{part}_proj") for part in "qkvr")
    k, v = (_convolved(t, rows, f"{p}{part}_sconv") for rows, part in ((k, "k"), (v, "v")))
    q, k, v = (rows.reshape(len(x), -1, d) for rows in (q, k, v))
    q, k = (model.norm(rows, f"{p}{part}_norm") for rows, part in ((q, "q"), (k, "k")))
    bias = distance_bias(r.reshape(*q.shape[:2], -1), t[p + "rel_logits_proj.proj"], pos, len(x))
    floor = c.get("log_scaling_n_floor")
    if floor and not local:
        tau = 1 + c["log_scaling_alpha"] * np.log(np.maximum((pos + 1) / floor, 1))
        q, bias = q * tau[:, None, None], bias * tau[:, None, None]
    window = c["sliding_window_size"] if local else 0
    y = attention(q, k, v, pos, 1 / d, window, bias=bias).reshape(len(x), -1)
    return model.linear(y, p + "o_proj")


def _experts(model: Any, x: F64, p: str) -> F64:
    """Weights are the scores of the chosen experts and of all shared ones, divided by their sum."""
    c, t = model.c, model.t
    scores = sigmoid(model.linear(x, p + "gate"))
    bias, out = t[p + "gate.e_score_correction_bias"], np.zeros_like(x)
    for token, own in enumerate(scores):
        best = choose(own[: len(bias)] + bias, c["num_experts_per_tok"])
        used = [*best, *range(len(bias), len(own))]
        for e in used:
            weight = own[e] / own[used].sum() * c["route_scale"] * t[p + "gate.global_scale"]
            if e < len(bias):
                gate, up = (t[f"{p}experts.gate_up_proj.{2 * e + half}"] for half in range(2))
                down = t[f"{p}experts.down_proj.{e}"]
            else:
                gate, up, down = (
                    t[f"{p}shared_experts.{part}_proj.{e - len(bias)}"] for part in ("gate", "up", "down")
                )
            out[token] += weight * (down @ (silu(gate @ x[token]) * (up @ x[token])))
    return out
