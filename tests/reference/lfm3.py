"""LFM3 in float64; `model` is families.Reference."""

from typing import Any

import numpy as np
from reference.attention import attention, rope
from reference.recurrent import F64, conv1d_gated, sigmoid
from reference.rope_scaling import scaling

NOT_TURNED = np.inf  # divisor of the frequency of a pair without rotation


def proportional(d: int, part: float, factor: float = 1.0) -> F64:
    """Divisors of the frequencies of d / 2 pairs if only a part of the pairs is rotated. f64 [d / 2]"""
    return np.where(np.arange(d // 2) < int(part * d // 2), factor, NOT_TURNED)


def layer_rope(model: Any, x: F64, kind: str, part: float) -> F64:
    """x [tok, head, d_head], rotated as in layers of a kind; `part`: share of rotated pairs if the config has none."""
    usual = {"full_attention": {"rope_type": "proportional", "rope_theta": 1e6, "partial_rotary_factor": part}}
    settings = (model.c.get("rope_parameters") or {"sliding_attention": {"rope_theta": 1e4}, **usual})[kind]
    d, factors = x.shape[2], None
    if settings.get("rope_type") == "proportional":
        factors = proportional(d, settings.get("partial_rotary_factor", 1.0), settings.get("factor", 1.0))
    magnitude = 1.0
    if settings.get("rope_type") in ("linear", "yarn"):
        factors, magnitude = scaling({"rope_parameters": settings}, d, settings["rope_theta"], len(x))
    return rope(x, np.arange(len(x)), d, settings["rope_theta"], 1.0, factors, True, magnitude)


def lfm3(model: Any, ids: list[int]) -> F64:
    """Logits [tok, vocabulary]."""
    x = model.t["model.embed_tokens.weight"][ids]
    for i, kind in enumerate(model.c["layer_types"]):
        p = f"model.layers.{i}."
        h = model.norm(x, p + "operator_norm")
        y = convolution(model, h, p + "conv.") if kind == "conv" else gated_attention(model, h, p + "self_attn.", kind)
        x = x + behind(model, y, p + "post_operator_norm")
        y = model.gated(model.norm(x, p + "ffn_norm"), p + "feed_forward.", "w1", "w3", "w2")
        x = x + behind(model, y, p + "post_ffn_norm")
    return model.head(model.norm(x, "model.embedding_norm"), "model.embed_tokens.weight")


def behind(model: Any, y: F64, norm: str) -> F64:
    return model.norm(y, norm) if norm + ".weight" in model.t else y


def convolution(model: Any, h: F64, p: str) -> F64:
    before, after, inner = np.split(model.linear(h, p + "in_proj"), 3, axis=1)
    taps, bias = model.t[p + "conv.weight"][:, 0].T, model.t.get(p + "conv.bias", np.float64(0))
    y, _ = conv1d_gated(inner, before, after, taps, bias, np.zeros((len(taps) - 1, len(taps.T))))
    return model.linear(y, p + "out_proj")


def gated_attention(model: Any, h: F64, p: str, kind: str) -> F64:
    q, k, v = (model.linear(h, f"{p}{part}_proj").reshape(len(h), -1, model.c["head_dim"]) for part in "qkv")
    q, k = (layer_rope(model, model.norm(x, f"{p}{part}_norm"), kind, 0.5) for x, part in ((q, "q"), (k, "k")))
    window = model.c["sliding_window"] if kind == "sliding_attention" else 0
    y = attention(q, k, v, np.arange(len(h)), q.shape[2] ** -0.5, window)
    if p + "gate_proj.weight" in model.t:
        y = y * sigmoid(model.linear(h, p + "gate_proj"))[:, :, None]
    return model.linear(y.reshape(len(h), -1), p + "o_proj")
