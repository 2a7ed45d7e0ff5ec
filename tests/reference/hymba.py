"""Hymba (arXiv:2411.13676) in float64, after its own code; `model` is families.Reference."""

from typing import Any

import numpy as np
from reference.attention import rope
from reference.mamba import convolved
from reference.recurrent import F64, mamba1_scan

GROUPS = [[1, 2], [3, 4], [5, 6], [7, 8], [9, 10], [11, 12]]  # the default of its config
STRETCH = 2


def hymba(model: Any, ids: list[int]) -> F64:
    """Logits [tok, vocabulary]. The meta tokens are rows before the text, at positions from 0 on."""
    c, meta = model.c, model.t["model.memory_tokens"]
    x = np.concatenate([meta, model.t["model.embed_tokens.weight"][ids]])
    kept: dict[int, tuple[F64, F64]] = {}
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        h, m = model.norm(x, p + "input_layernorm"), p + "mamba."
        source = source_of(c, i)
        if source == i:
            kept[i] = model.linear(h, m + "in_proj.k"), model.linear(h, m + "in_proj.v")
        window = 0 if i in c.get("global_attn_idx", [0, 15, 31]) else c.get("sliding_window", 1024) or 0
        heads = attend(model, model.linear(h, m + "in_proj.q"), *kept[source], len(meta), window)
        both = model.norm(heads, m + "pre_avg_layernorm1") + model.norm(scan(model, h, m), m + "pre_avg_layernorm2")
        x = x + model.linear(both / 2, m + "out_proj")
        x = x + model.gated(model.norm(x, p + "pre_moe_layernorm"), p + "moe.experts.0.")
    return model.head(model.norm(x[len(meta) :], "model.final_layernorm"), "model.embed_tokens.weight")


def source_of(c: dict[str, Any], i: int) -> int:
    """The layer whose keys and values layer i uses."""
    groups, every = c.get("kv_reuse_group", GROUPS), c.get("kv_reuse_every_i_layer", -1)
    if groups is None:
        return i if every < 1 else i // every * every
    return next((source_of(c, group[0]) for group in groups if i in group[1:]), i)


def attend(model: Any, q: F64, k: F64, v: F64, n_meta: int, window: int) -> F64:
    """A token sees the meta tokens, itself and the `window` tokens before it (0: all), never a later one."""
    c, n, pos = model.c, len(q), np.arange(len(q))
    n_head, n_kv = c["num_attention_heads"], c["num_key_value_heads"]
    d, base = c["hidden_size"] // n_head, c.get("rope_theta", 10000.0)
    if c.get("rope_type", "ntk") == "ntk":
        times = STRETCH * c["max_position_embeddings"] / c.get("orig_max_position_embeddings", 2048) - STRETCH + 1
        base *= times ** (d / (d - 2))
    q, k = (rope(x.reshape(n, -1, d), pos, d, base, neox=True) for x in (q, k))
    v, out = v.reshape(n, n_kv, -1), []
    distance = pos[:, None] - pos
    seen = (distance >= 0) & ((distance <= (window or n)) | (pos < n_meta))
    for h in range(n_head):
        scores = np.where(seen, q[:, h] @ k[:, h // (n_head // n_kv)].T * d**-0.5, -np.inf)
        weights = np.exp(scores - scores.max(1, keepdims=True))
        out.append(weights @ v[:, h // (n_head // n_kv)] / weights.sum(1, keepdims=True))
    return np.concatenate(out, axis=1)


def scan(model: Any, h: F64, p: str) -> F64:
    """The gated scan's output."""
    x, z = np.split(model.linear(h, p + "in_proj.scan"), 2, axis=1)
    x = convolved(model, x, p)
    A = -np.exp(model.t[p + "A_log.0"])
    n = A.shape[1]
    parts = np.split(model.linear(x, p + "x_proj.0"), [-2 * n, -n], axis=1)
    dt, B, C = (model.norm(y, f"{p}{name}_layernorm") for y, name in zip(parts, ("dt", "B", "C"), strict=True))
    dt, bias = dt @ model.t[p + "dt_proj.0.weight"].T, model.t[p + "dt_proj.0.bias"]
    y, _ = mamba1_scan(x, dt, bias, A, model.t[p + "D.0"], B, C, z, np.zeros(A.shape))
    return y
