"""The text part of Gemma 4 in float64; `model` is families.Reference."""

from typing import Any

import numpy as np
from reference.attention import attention
from reference.experts import softmax
from reference.lfm3 import layer_rope
from reference.recurrent import F64


def gelu(x: F64) -> F64:
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def plain(x: F64, eps: float) -> F64:
    """RMS norm without weights."""
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps)


def gemma4(model: Any, ids: list[int]) -> F64:
    """Logits [tok, vocabulary]."""
    c, n = model.c, model.c["hidden_size"]
    x = model.t["model.embed_tokens.weight"][ids] * n**0.5
    per_layer = inputs_of_layers(model, x, ids) if c.get("hidden_size_per_layer_input", 256) else None
    usual = ["full_attention" if i % 6 == 5 else "sliding_attention" for i in range(c["num_hidden_layers"])]
    kinds = [*c.get("layer_types", usual)[:-1], "full_attention"]
    kept: dict[str, tuple[F64, F64]] = {}  # the last keys and values of each kind of layer
    for i, kind in enumerate(kinds):
        p = f"model.layers.{i}."
        y = attend(model, model.norm(x, p + "input_layernorm"), p + "self_attn.", i, kind, kept)
        x = x + model.norm(y, p + "post_attention_layernorm")
        y = mlp(model, model.norm(x, p + "pre_feedforward_layernorm"), p + "mlp.")
        if c.get("enable_moe_block"):
            y = model.norm(y, p + "post_feedforward_layernorm_1")
            y = y + model.norm(experts(model, x, p), p + "post_feedforward_layernorm_2")
        x = x + model.norm(y, p + "post_feedforward_layernorm")
        if per_layer is not None:
            y = gelu(model.linear(x, p + "per_layer_input_gate")) * per_layer[:, i]
            x = x + model.norm(model.linear(y, p + "per_layer_projection"), p + "post_per_layer_input_norm")
        x = x * model.t[p + "layer_scalar"]
    y = model.head(model.norm(x, "model.norm"), "model.embed_tokens.weight")
    cap = c.get("final_logit_softcapping")
    return cap * np.tanh(y / cap) if cap else y


def inputs_of_layers(model: Any, x: F64, ids: list[int]) -> F64:
    """[tok, layer, values]"""
    shape = (len(ids), model.c["num_hidden_layers"], -1)
    own = model.t["model.embed_tokens_per_layer.weight"][ids].reshape(shape)
    made = (model.linear(x, "model.per_layer_model_projection") * x.shape[1] ** -0.5).reshape(shape)
    return (model.norm(made, "model.per_layer_projection_norm") + own * own.shape[2] ** 0.5) / np.sqrt(2)


def heads_of(c: dict[str, Any], i: int, kind: str) -> tuple[int, int]:
    """(head size, number of KV heads) of layer i."""
    d, n_kv = c.get("head_dim", 256), c.get("num_key_value_heads", 4)
    if "per_layer_config" in c:
        own = c["per_layer_config"].get(str(i), {})
        return own.get("head_dim", d), own.get("num_key_value_heads", n_kv)
    if kind == "sliding_attention":
        return d, n_kv
    n_full = c.get("num_global_key_value_heads") if c.get("attention_k_eq_v") else None
    return c.get("global_head_dim", 512), n_full or n_kv


def attend(model: Any, h: F64, p: str, i: int, kind: str, kept: dict[str, tuple[F64, F64]]) -> F64:
    c, (d, n_kv) = model.c, heads_of(model.c, i, kind)
    q = layer_rope(model, model.norm(model.linear(h, p + "q_proj").reshape(len(h), -1, d), p + "q_norm"), kind, 0.25)
    if i < c["num_hidden_layers"] - c.get("num_kv_shared_layers", 0):
        k = model.linear(h, p + "k_proj").reshape(len(h), n_kv, d)
        v = model.linear(h, p + "v_proj").reshape(k.shape) if p + "v_proj.weight" in model.t else k
        kept[kind] = layer_rope(model, model.norm(k, p + "k_norm"), kind, 0.25), plain(v, model.eps)
    window = c["sliding_window"] if kind == "sliding_attention" else 0
    y = attention(q, *kept[kind], np.arange(len(h)), 1.0, window)
    return model.linear(y.reshape(len(h), -1), p + "o_proj")


def mlp(model: Any, h: F64, p: str) -> F64:
    return model.linear(gelu(model.linear(h, p + "gate_proj")) * model.linear(h, p + "up_proj"), p + "down_proj")


def experts(model: Any, x: F64, p: str) -> F64:
    """The experts of each token: the residual stream selects them; their input is normalized."""
    h = model.norm(x, p + "pre_feedforward_layernorm_2")
    routed = plain(x, model.eps) * model.t[p + "router.scale"] * x.shape[1] ** -0.5
    scores = softmax(model.linear(routed, p + "router.proj"))
    out = np.zeros_like(x)
    for t, row in enumerate(scores):
        chosen = np.argsort(-row, kind="stable")[: model.c["top_k_experts"]]
        for e in chosen:
            gate, up = np.split(model.t[p + "experts.gate_up_proj"][e] @ h[t], 2)
            y = model.t[p + "experts.down_proj"][e] @ (gelu(gate) * up)
            out[t] += row[e] / row[chosen].sum() * model.t[p + "router.per_expert_scale"][e] * y
    return out
