"""GLM-5.3-Flash in float64; `model` is families.Reference. Keys and values are computed from the latent vectors."""

from typing import Any

import numpy as np
from reference.experts import mixture, softmax
from reference.hyper_connections import hyper_connected
from reference.kimi import kda, rms, up_projection
from reference.recurrent import F64, sigmoid, silu

USUAL = {
    "rms_norm_eps": 1e-5, "hc_mult": 4, "hc_eps": 1e-6, "hc_sinkhorn_iters": 20, "swiglu_limit": 10.0,
    "index_kpool": 16, "index_topk": 2048, "linear_lower_bound": -5.0, "n_group": 1, "topk_group": 1,
    "norm_topk_prob": True, "routed_scaling_factor": 2.5,
}  # fmt: skip


def glm5_next(model: Any, ids: list[int]) -> F64:
    """Logits [tok, vocabulary]."""
    c = {**USUAL, **model.c, **model.c.get("text_config", {})}
    published = c.get("linear_attn_config", {})
    c["linear_lower_bound"] = published.get("gate_lower_bound", c["linear_lower_bound"])
    tensors = {name.replace("model.language_model.", "model.", 1): x for name, x in model.t.items()}
    model = type(model)(c, tensors)
    x = np.repeat(model.t["model.embed_tokens.weight"][ids][:, None], c["hc_mult"], 1)
    seen = None
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        if p + "self_attn.b_proj.weight" in model.t:
            seen = None
            lowest = c["linear_lower_bound"]
            x = connected(model, x, p, "attn", lambda h, p=p, b=lowest: kda(model, h, p + "self_attn.", b))
        else:
            heard: list[F64] = []
            mask = seen

            def attend(h: F64, p: str = p, mask: F64 | None = mask, heard: list[F64] = heard) -> F64:
                y, chosen = attention(model, h, p + "self_attn.", mask)
                heard.append(chosen)
                return y

            x = connected(model, x, p, "attn", attend)
            seen = heard[0]
        x = connected(model, x, p, "ffn", lambda h, p=p: feed_forward(model, h, p + "mlp."))
    return model.head(model.norm(x.mean(1), "model.norm"), "model.embed_tokens.weight")


def connected(model: Any, x: F64, p: str, part: str, sublayer: Any) -> F64:
    c = model.c
    norm = p + {"attn": "input_layernorm", "ffn": "post_attention_layernorm"}[part]
    if f"{p}hc_{part}_fn" not in model.t:  # a head that guesses tokens ahead: all its streams are equal
        return x + sublayer(model.norm(x[:, 0], norm))[:, None]
    numbers = (model.t[f"{p}hc_{part}_{name}"] for name in ("fn", "base", "scale"))
    return hyper_connected(
        x, *numbers, c["hc_sinkhorn_iters"], c["rms_norm_eps"], c["hc_eps"], lambda h: sublayer(model.norm(h, norm))
    )


def attention(model: Any, x: F64, p: str, seen: F64 | None) -> tuple[F64, F64]:
    """The output, and the tokens that each token saw: `seen`, unless the layer selects them itself."""
    c, n, n_head, eps = model.c, len(x), model.c["num_attention_heads"], model.eps
    low = rms(model.linear(x, p + "q_a_proj"), model.t[p + "q_a_layernorm.weight"], eps)
    q = model.linear(low, p + "q_b_proj").reshape(n, n_head, -1)
    latent = rms(model.linear(x, p + "kv_a_proj_with_mqa"), model.t[p + "kv_a_layernorm.weight"], eps)
    made = (latent @ up_projection(model, p, n_head).T).reshape(n, n_head, -1)
    d = c["qk_nope_head_dim"]
    if p + "indexer.wk.weight" in model.t:
        seen = chosen(model, x, low, p + "indexer.")
    assert seen is not None
    scores = np.einsum("thd,shd->hts", q, made[:, :, :d]) * d**-0.5
    weights = softmax(np.where(seen, scores, -np.inf))
    y = np.einsum("hts,shd->thd", weights, made[:, :, d:])
    return model.linear(y.reshape(n, -1), p + "o_proj"), seen


def chosen(model: Any, x: F64, low: F64, p: str) -> F64:
    """Bool [tok, tok]: the tokens of the best pools, and those after the last complete pool."""
    c, n = model.c, len(x)
    m, d = c["index_kpool"], c["index_head_dim"]
    q = model.linear(low, p + "wq_b").reshape(n, -1, d)
    k = model.linear(x, p + "wk")
    k = (k - k.mean(1, keepdims=True)) / np.sqrt(k.var(1, keepdims=True) + 1e-6)
    k = k * model.t[p + "k_norm.weight"] + model.t[p + "k_norm.bias"]
    gate = x @ model.t[p + "index_kpool_compress_gate"].T
    whole = n // m * m
    logits = gate[:whole].reshape(-1, m, d) + model.t[p + "index_kpool_compress_ape"]
    shares = np.exp(logits - logits.max(1, keepdims=True))
    pools = (shares / shares.sum(1, keepdims=True) * k[:whole].reshape(-1, m, d)).sum(1)
    weights = model.linear(x, p + "weights_proj") * q.shape[1] ** -0.5
    scores = np.einsum("th,thp->tp", weights, np.maximum(q @ pools.T * d**-0.5, 0))
    seen = np.zeros((n, n), bool)
    for t in range(n):
        finished = (t + 1) // m
        best = np.argsort(-scores[t, :finished], kind="stable")[: c["index_topk"] // m]
        for pool in best:
            seen[t, pool * m : (pool + 1) * m] = True
        seen[t, finished * m : t + 1] = True
    return seen


def limited(model: Any, x: F64, p: str) -> F64:
    limit = model.c["swiglu_limit"] or np.inf
    gate, up = (model.linear(x, p + part) for part in ("gate_proj", "up_proj"))
    return model.linear(silu(np.minimum(gate, limit)) * np.clip(up, -limit, limit), p + "down_proj")


def feed_forward(model: Any, x: F64, m: str) -> F64:
    c = model.c
    if m + "gate.weight" not in model.t:
        return limited(model, x, m)
    y = mixture(
        x,
        sigmoid(model.linear(x, m + "gate")),
        model.t[m + "gate.e_score_correction_bias"],
        c["num_experts_per_tok"],
        lambda one, e: limited(model, one, f"{m}experts.{e}."),
        c["norm_topk_prob"],
        (c["n_group"], c["topk_group"]),
    )
    return y * c["routed_scaling_factor"] + limited(model, x, m + "shared_experts.")
