"""DeepSeek-V4 in float64; `model` is families.Reference."""

from typing import Any

import numpy as np
from reference import pools, selection
from reference.experts import mixture
from reference.hyper_connections import hyper_connected, learned_collapse
from reference.recurrent import F64, sigmoid
from reference.rope_scaling import scaling

WINDOW, CSA, HCA = "sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"


def deepseek4(model: Any, ids: list[int]) -> F64:
    """Logits [tok, vocabulary]."""
    return ended(model, streams(model, ids), "hc_head", "norm")


def streams(model: Any, ids: list[int]) -> F64:
    """The streams after the layers, [tok, stream, n]."""
    c, t = model.c, model.t
    n_layer, hashed = c["num_hidden_layers"], c.get("mlp_layer_types")
    hashed = c["num_hash_layers"] if hashed is None else hashed.count("hash_moe")
    kinds = c.get("layer_types") or [{0: WINDOW, 4: CSA, 128: HCA}[r] for r in c["compress_ratios"][:n_layer]]
    x = np.repeat(t["embed.weight"][ids][:, None], c["hc_mult"], axis=1)
    for i in range(n_layer):
        tables = t.get(f"layers.{i}.ffn.gate.tid2eid") if i < hashed else None
        x = layer(model, x, f"layers.{i}.", kinds[i], None if tables is None else tables[ids].astype(int))
    return x


def layer(model: Any, x: F64, p: str, kind: str, table: np.ndarray | None) -> F64:
    """Streams x after a layer. table: experts of each token; None: the best ones."""
    c, t = model.c, model.t
    parts = {
        "attn": lambda y: _attention(model, y, p + "attn.", kind),
        "ffn": lambda y: _experts(model, y, p + "ffn.", table),
    }
    for name, part in parts.items():
        fn, base, scale = (t[f"{p}hc_{name}_{k}"] for k in ("fn", "base", "scale"))
        x = hyper_connected(
            x,
            fn,
            base,
            scale,
            c["hc_sinkhorn_iters"],
            model.eps,
            c["hc_eps"],
            lambda y, name=name, part=part: part(model.norm(y, f"{p}{name}_norm")),
        )
    return x


def ended(model: Any, x: F64, mix: str, norm: str) -> F64:
    """Logits of streams."""
    fn, base, scale = (model.t[f"{mix}_{k}"] for k in ("fn", "base", "scale"))
    left = learned_collapse(x, fn, base, scale, model.eps, model.c["hc_eps"])
    return model.norm(left, norm) @ model.t["head.weight"].T


def _turns(c: dict[str, Any], kind: str) -> F64:
    """Radians per position of every pair."""
    both = c.get("rope_parameters")
    if both:
        rope = both["main" if kind == WINDOW else "compress"]
        n = int(c["head_dim"] * rope["partial_rotary_factor"])
        return rope["rope_theta"] ** (-np.arange(0, n, 2) / n)
    n, theta = c["qk_rope_head_dim"], c["rope_theta" if kind == WINDOW else "compress_rope_theta"]
    plain = theta ** (-np.arange(0, n, 2) / n)
    return plain if kind == WINDOW else plain / scaling(c, n, theta, 0)[0]


def _turned(x: F64, pos: F64, turns: F64) -> F64:
    """x [tok, head, d] with the last values of every head rotated, in neighbouring pairs."""
    first, angle = x.shape[2] - 2 * len(turns), pos[:, None, None] * turns
    a, b, y = x[..., first::2], x[..., first + 1 :: 2], x.copy()
    y[..., first::2], y[..., first + 1 :: 2] = (
        a * np.cos(angle) - b * np.sin(angle),
        a * np.sin(angle) + b * np.cos(angle),
    )
    return y


def _compressed(model: Any, x: F64, p: str, every: int, turns: F64, overlapping: bool) -> F64:
    """Entries [group, d] of the groups of tokens."""
    u, z = model.linear(x, p + "wkv"), model.linear(x, p + "wgate")
    entries = pools.pool(u, z, model.t[p + "ape"], every, overlapping=overlapping)
    return _turned(model.norm(entries, p + "norm")[:, None], every * np.arange(len(entries)), turns)[:, 0]


def _attention(model: Any, x: F64, p: str, kind: str) -> F64:
    c, t, d, pos = model.c, model.t, model.c["head_dim"], np.arange(len(x))
    turns, rates = _turns(c, kind), c.get("compress_rates") or {CSA: 4, HCA: 128}
    latent = model.norm(model.linear(x, p + "wq_a"), p + "q_norm")
    q = model.linear(latent, p + "wq_b").reshape(len(x), -1, d)
    q = _turned(q / np.sqrt((q * q).mean(-1, keepdims=True) + model.eps), pos, turns)
    kv = _turned(model.norm(model.linear(x, p + "wkv"), p + "kv_norm")[:, None], pos, turns)[:, 0]
    every, entries = rates.get(kind, 0), np.empty((0, d))
    if every:
        entries = _compressed(model, x, p + "compressor.", every, turns, kind == CSA)
    if kind == CSA:
        n_index = c["index_head_dim"]
        index_q = _turned(model.linear(latent, p + "indexer.wq_b").reshape(len(x), -1, n_index), pos, turns)
        keys = _compressed(model, x, p + "indexer.compressor.", every, turns, True)
        shares = model.linear(x, p + "indexer.weights_proj")
    out = np.empty_like(q)
    for i in range(len(x)):
        chosen = list(range((i + 1) // every)) if every else []
        if kind == CSA:
            scores = selection.index_scores(
                index_q[i], keys[: len(chosen)], (n_index * c["index_n_heads"]) ** -0.5, shares[i]
            )
            chosen = selection.best(scores, c["index_topk"])
        seen = np.concatenate([entries[chosen], kv[max(0, i + 1 - c["sliding_window"]) : i + 1]])
        logits = np.concatenate([q[i] @ seen.T * d**-0.5, t[p + "attn_sink"][:, None]], axis=1)
        weights = np.exp(logits - logits.max(1, keepdims=True))
        out[i] = (weights / weights.sum(1, keepdims=True))[:, :-1] @ seen
    grouped = _turned(out, -pos, turns).reshape(len(x), c["o_groups"], -1)
    w = t[p + "wo_a.weight"].reshape(c["o_groups"], c["o_lora_rank"], -1)
    return model.linear(np.einsum("tgi,gri->tgr", grouped, w).reshape(len(x), -1), p + "wo_b")


def _experts(model: Any, x: F64, p: str, table: np.ndarray | None) -> F64:
    """table: [tok, chosen]; None: the best experts."""
    c, limit = model.c, model.c["swiglu_limit"]

    def expert(one: F64, name: object) -> F64:
        m = p + (name if isinstance(name, str) else f"experts.{name}.")
        gate, up = np.minimum(model.linear(one, m + "w1"), limit), np.clip(model.linear(one, m + "w3"), -limit, limit)
        return model.linear(gate * sigmoid(gate) * up, m + "w2")

    scores = np.sqrt(np.log1p(np.exp(x @ model.t[p + "gate.weight"].T)))
    if table is None:
        y = mixture(x, scores, model.t[p + "gate.bias"], c["num_experts_per_tok"], expert)
    else:
        parts = [[(scores[i, e], expert(x[i : i + 1], e)[0]) for e in row] for i, row in enumerate(table)]
        y = np.stack([sum(w * v for w, v in row) / sum(w for w, _ in row) for row in parts])
    return y * c["routed_scaling_factor"] + expert(x, "shared_experts.")
