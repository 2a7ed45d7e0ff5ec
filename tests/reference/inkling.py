"""Inkling and Inkling 2 in float64; `model` is families.Reference."""

from typing import Any

import numpy as np
from reference.attention import attention, distance_bias
from reference.experts import choose, mixture, softmax
from reference.kimi import rms
from reference.kimi_k3 import situ
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


def clipped(x: F64, limit: float) -> F64:
    """Heads [..., n], none much longer than `limit`."""
    length = np.sqrt((x * x).sum(-1, keepdims=True))
    return x * np.minimum(limit / (length + 1e-6), 1)


def inkling2(model: Any, ids: list[int]) -> F64:
    """Also with loops, each pass of which begins again, with messages from the pass before."""
    c, t = model.c, model.t
    stream = model.norm(t["model.embed_tokens.weight"][ids], "model.embed_tokens.embed_norm")
    banks: list[F64] = []
    n_layer = c["num_hidden_layers"]
    stated = c.get("loop_config", {})
    loop = range(
        stated.get("core_start", c.get("loop_layer_index_start", 0)),
        stated.get("core_end", c.get("loop_layer_index_end", 0)),
    )
    for i in range(loop.start):
        stream = _layer2(model, banks, stream, i)
    before, n_bank = stream, len(banks)
    for number in range(stated.get("num_passes", c.get("loop_num_passes", 0))):
        sent = [*banks[n_bank + 1 :], stream]
        del banks[n_bank:]
        stream = before
        for i in loop:
            query = "model.message_input.query."
            messages = [_mixed(sent, t[f"{query}{4 * (i - loop.start) + m}"]) for m in range(4)] if number else None
            stream = _layer2(model, banks, stream, i, messages)
    for i in range(loop.stop, n_layer):
        stream = _layer2(model, banks, stream, i)
    h = model.norm(_mixed([*banks, stream], t["model.final_input.query"]), "model.norm")
    cap = c["final_logit_softcapping"]
    return cap * np.tanh(model.linear(h, "lm_head") / cap)


def _layer2(model: Any, banks: list[F64], stream: F64, i: int, messages: list[F64] | None = None) -> F64:
    """The stream after layer i; the layer may add a bank. messages: to queries, keys, values and experts."""
    c, t, p, before = model.c, model.t, f"model.layers.{i}.", stream
    y = _scaled(t, _attention2(model, [*banks, stream], i, messages), p + "post_attention_convolution")
    if i % c["n_layers_per_attn_res_block"] == 0:
        banks.append(before)
        stream = y
    else:
        stream = before + y
    h = _mixed([*banks, stream], t[p + "mlp_input.query"])
    if messages is not None:
        h = _gated(model, h, messages[3], p + "mlp_message_gate.")
    y = _experts2(model, model.norm(h, p + "post_attention_layernorm"), p + "mlp.")
    return stream + _scaled(t, y, p + "post_mlp_convolution")


def with_message(x: F64, message: F64, forget: F64, gain: F64) -> F64:
    return (1 - np.tanh(forget)) * x + np.tanh(gain) * message


def _gated(model: Any, x: F64, message: F64, p: str) -> F64:
    both = np.concatenate([rms(x, 1.0, model.eps), rms(message, 1.0, model.eps)], axis=1)
    low = model.linear(both, p + "down_proj")
    return with_message(x, message, *(model.linear(low, f"{p}{name}_gate_proj") for name in ("forget", "message")))


def _mixed(rows: list[F64], query: F64) -> F64:
    """The mix of normed rows [tok, n], by softmax weights."""
    normed = np.stack([rms(row, 1.0, 1e-6) for row in rows], axis=1)
    weights = softmax(normed @ query / np.sqrt(len(query)))
    return (weights[:, :, None] * normed).sum(1)


def _scaled(t: dict[str, F64], x: F64, name: str) -> F64:
    return _convolved(t, x, name) / np.sqrt(t[name + ".conv1d.weight"].shape[2] + 1)


def _changed(x: F64, static: F64, changes: F64) -> F64:
    """A convolution with taps [lag, channel] and changes [tok, head, lag] of them, plus its input."""
    total, n = x.copy(), x.shape[1] // changes.shape[1]
    for token in range(len(x)):
        for lag in range(min(len(static), token + 1)):
            total[token] += (static[lag] + np.repeat(changes[token, :, lag], n)) * x[token - lag]
    return total / np.sqrt(2 * len(static) + 1)


def _attention2(model: Any, streams: list[F64], i: int, messages: list[F64] | None) -> F64:
    c, t, layer, pos = model.c, model.t, f"model.layers.{i}.", np.arange(len(streams[0]))
    p, n_tok = layer + "self_attn.", len(pos)
    local = c["layer_types"][i] == "hybrid_sliding" if "layer_types" in c else (i + 1) % 6 != 0
    d = c["swa_head_dim" if local else "head_dim"]
    query = f"{layer}attention_input.query"
    inputs = {}
    for number, part in enumerate("qkv"):
        own, norm = (query, "input_layernorm") if local else (f"{query}.{number}", f"{part}_input_layernorm")
        mixed = _mixed(streams, t[own]) if i else streams[0]
        if messages is not None:
            mixed = _gated(model, mixed, messages[number], f"{layer}{part}_message_gate.")
        inputs[part] = model.norm(mixed, layer + norm)
    x = inputs["q"]
    rows = {part: model.linear(inputs[part], f"{p}{part}_proj.linear") for part in "qkv"}
    for part in "kv":
        name = f"{p}{part}_proj.sconv"
        if local:
            rows[part] = _scaled(t, rows[part], name)
        else:
            changes = model.linear(inputs[part], name + ".weight_proj")
            static = t[name + ".static_weight"]
            rows[part] = _changed(rows[part], static, changes.reshape(n_tok, -1, len(static)))
    q, k, v = (rows[part].reshape(n_tok, -1, d) for part in "qkv")
    r = model.linear(x, p + "relative_position_bias.linear").reshape(*q.shape[:2], -1)
    q = clipped(q * t[p + "q_proj.norm.scale"], c["qk_l2_clip_threshold"])
    k = clipped(k, c["qk_l2_clip_threshold"])
    v = rms(v, 1.0, model.eps)
    r = clipped(r * t[p + "relative_position_bias.norm.scale"], c["rel_l2_clip_threshold"])
    if not local:
        tau = 1 + c["log_scaling_alpha"] * np.log(np.maximum((pos + 1) / c["log_scaling_n_floor"], 1))
        q, r = q * tau[:, None, None], r * tau[:, None, None]
    bias = distance_bias(r, t[p + "relative_position_bias.proj"], pos, n_tok)
    window = c["sliding_window_size"] if local else 0
    sinks = model.linear(x, p + "sink_proj")
    y = attention(q, k, v, pos, d**-0.5, window, sinks=sinks, bias=bias).reshape(n_tok, -1)
    return model.linear(y * sigmoid(model.linear(x, p + "o_proj.gate_proj")), p + "o_proj.linear")


def _experts2(model: Any, x: F64, p: str) -> F64:
    c, t = model.c, model.t

    def expert(rows: F64, e: int) -> F64:
        gate, up = (rows @ t[f"{p}experts.gate_up_proj.{2 * e + half}"].T for half in range(2))
        return situ(gate, up, c["mlp_gate_softcap"], c["mlp_up_softcap"]) @ t[f"{p}experts.down_proj.{e}"].T

    scores, bias = sigmoid(model.linear(x, p + "gate")), t[p + "gate.e_score_correction_bias"]
    return c["route_scale"] * mixture(x, scores, bias, c["num_experts_per_tok"], expert)
