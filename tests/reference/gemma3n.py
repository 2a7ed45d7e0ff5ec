"""The text part of Gemma 3n in float64; `model` is families.Reference."""

from statistics import NormalDist
from typing import Any

import numpy as np
from reference.attention import attention, rope
from reference.gemma4 import gelu, inputs_of_layers, plain
from reference.recurrent import F64

FLOOR = 1e-5


def gemma3n(model: Any, ids: list[int]) -> F64:
    """Logits [tok, vocabulary]."""
    c = model.c
    n, active = c.get("altup_num_inputs", 4), c.get("altup_active_idx", 0)
    x = model.t["model.embed_tokens.weight"][ids] * c["hidden_size"] ** 0.5
    per_layer = inputs_of_layers(model, x, ids)
    streams = [x] + [matched(x, model.linear(x, f"model.altup_projections.{i}")) for i in range(n - 1)]
    kept: dict[str, tuple[F64, F64]] = {}
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        coefs = model.linear(modalities(model, streams[active], p), p + "altup.prediction_coefs").reshape(-1, n, n)
        predicted = [x + sum(coefs[:, q, o, None] * streams[o] for o in range(n)) for q, x in enumerate(streams)]
        made = block(model, predicted[active], p, i, kept)
        shares = 1 + model.linear(modalities(model, made, p), p + "altup.correction_coefs")
        news = made - predicted[active]
        streams = [x + shares[:, q, None] * news for q, x in enumerate(predicted)]
        first = streams[active] * (model.t[p + "altup.correct_output_scale"] if c.get("altup_correct_scale", 1) else 1)
        y = gelu(model.linear(first, p + "per_layer_input_gate")) * per_layer[:, i]
        y = model.norm(model.linear(y, p + "per_layer_projection"), p + "post_per_layer_input_norm")
        streams = [streams[0], *(x + y for x in streams[1:])]
    for i in range(1, n):
        streams[i] = matched(streams[0], model.linear(streams[i], f"model.altup_unembed_projections.{i - 1}"))
    y = model.head(model.norm(sum(streams) / n, "model.norm"), "model.embed_tokens.weight")
    cap = c.get("final_logit_softcapping", 30.0)
    return cap * np.tanh(y / cap) if cap else y


def matched(x: F64, y: F64) -> F64:
    """y scaled to the magnitude of x."""
    size = np.maximum((y * y).mean(-1, keepdims=True), FLOOR)
    return y * np.sqrt((x * x).mean(-1, keepdims=True) / size)


def modalities(model: Any, x: F64, p: str) -> F64:
    return np.tanh(model.linear(model.norm(x, p + "altup.router_norm") / x.shape[1], p + "altup.modality_router"))


def block(model: Any, x: F64, p: str, i: int, kept: dict[str, tuple[F64, F64]]) -> F64:
    h = model.norm(x, p + "input_layernorm")
    low = model.linear(model.linear(h, p + "laurel.linear_left"), p + "laurel.linear_right")
    low = h + model.norm(low, p + "laurel.post_laurel_norm")
    y = model.norm(attend(model, h, p + "self_attn.", i, kept), p + "post_attention_layernorm")
    x = (x + y + low) / np.sqrt(2)
    y = mlp(model, model.norm(x, p + "pre_feedforward_layernorm"), p + "mlp.", i)
    return x + model.norm(y, p + "post_feedforward_layernorm")


def attend(model: Any, h: F64, p: str, i: int, kept: dict[str, tuple[F64, F64]]) -> F64:
    c, kind = model.c, model.c["layer_types"][i]
    q, k, v = (f"{p}{part}_proj" for part in "qkv")
    split = (len(h), -1, c["head_dim"])
    queries = turned(model, model.norm(model.linear(h, q).reshape(split), p + "q_norm"), kind)
    if i < c["num_hidden_layers"] - c["num_kv_shared_layers"]:
        keys = turned(model, model.norm(model.linear(h, k).reshape(split), p + "k_norm"), kind)
        kept[kind] = keys, plain(model.linear(h, v).reshape(split), model.eps)
    window = c["sliding_window"] if kind == "sliding_attention" else 0
    y = attention(queries, *kept[kind], np.arange(len(h)), 1.0, window)
    return model.linear(y.reshape(len(h), -1), p + "o_proj")


def turned(model: Any, x: F64, kind: str) -> F64:
    theta = {"full_attention": 1e6, "sliding_attention": 1e4}[kind]
    settings = (model.c.get("rope_parameters") or {}).get(kind, {})
    theta, factor = settings.get("rope_theta", theta), settings.get("factor", 1.0)
    return rope(x, np.arange(len(x)), x.shape[2], theta, 1 / factor, neox=True)


def mlp(model: Any, h: F64, p: str, i: int) -> F64:
    gate, share = model.linear(h, p + "gate_proj"), model.c["activation_sparsity_pattern"][i]
    if share:
        bound = gate.mean(-1, keepdims=True) + NormalDist().inv_cdf(share) * gate.std(-1, keepdims=True)
        gate = np.maximum(gate - bound, 0)
    return model.linear(gelu(gate) * model.linear(h, p + "up_proj"), p + "down_proj")
