"""DeepSeek-V3.2 and GLM-5 in float64: latent attention to tokens that an indexer chooses."""

from typing import Any

import numpy as np
from reference.attention import rope
from reference.deepseek import feed_forward, turns
from reference.experts import softmax
from reference.kimi import LATENT_EPS, rms, turned, up_projection
from reference.recurrent import F64


def deepseek32(model: Any, ids: list[int], *, neox: bool = True) -> F64:
    """Logits [tok, vocabulary]. neox: of RoPE in the indexer."""
    kinds, seen = model.c.get("indexer_types") or ["full"] * model.c["num_hidden_layers"], None
    x = model.t["model.embed_tokens.weight"][ids]
    for i in range(model.c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        y, seen = attend(
            model, model.norm(x, p + "input_layernorm"), p + "self_attn.", None if kinds[i] == "full" else seen, neox
        )
        x = x + y
        x = x + feed_forward(model, model.norm(x, p + "post_attention_layernorm"), p + "mlp.")
    return model.head(model.norm(x, "model.norm"), "model.embed_tokens.weight")


def attend(model: Any, x: F64, p: str, seen: F64 | None, neox: bool) -> tuple[F64, F64]:
    """seen: None: the layer chooses. Its output, and what it sees."""
    c, n, n_head = model.c, len(x), model.c["num_attention_heads"]
    rank, d = c["kv_lora_rank"], c["qk_nope_head_dim"]
    frequencies, growth = turns(c)
    low = rms(model.linear(x, p + "q_a_proj"), model.t[p + "q_a_layernorm.weight"], LATENT_EPS)
    q = model.linear(low, p + "q_b_proj").reshape(n, n_head, -1)
    both = model.linear(x, p + "kv_a_proj_with_mqa")
    latent = rms(both[:, :rank], model.t[p + "kv_a_layernorm.weight"], LATENT_EPS)
    made = (latent @ up_projection(model, p, n_head).T).reshape(n, n_head, -1)
    scores = np.einsum("thd,shd->hts", q[:, :, :d], made[:, :, :d])
    shared = turned(both[:, None, rank:], frequencies)[:, 0]
    scores = scores + np.einsum("thd,sd->hts", turned(q[:, :, d:], frequencies), shared)
    seen = chosen(model, x, low, p + "indexer.", neox) if seen is None else seen
    weights = softmax(np.where(seen, scores * growth * q.shape[2] ** -0.5, -np.inf))
    y = np.einsum("hts,shd->thd", weights, made[:, :, d:])
    return model.linear(y.reshape(n, -1), p + "o_proj"), seen


def chosen(model: Any, x: F64, low: F64, p: str, neox: bool) -> F64:
    """Bool [tok, tok]: the tokens that each token sees."""
    c, n, d = model.c, len(x), model.c["index_head_dim"]
    n_rot, (frequencies, _) = c["qk_rope_head_dim"], turns(c)
    factors = model.theta ** (-np.arange(0, n_rot, 2) / n_rot) / frequencies
    k = model.linear(x, p + "wk")
    k = (k - k.mean(1, keepdims=True)) / np.sqrt(k.var(1, keepdims=True) + 1e-6)
    k = (k * model.t[p + "k_norm.weight"] + model.t[p + "k_norm.bias"])[:, None]
    q = model.linear(low, p + "wq_b").reshape(n, -1, d)
    q, k = (rope(part, np.arange(n), n_rot, model.theta, 1.0, factors, neox=neox) for part in (q, k))
    scores = np.einsum("th,ths->ts", model.linear(x, p + "weights_proj"), np.maximum(q @ k[:, 0].T, 0))
    seen = np.zeros((n, n), bool)
    for t in range(n):
        seen[t, np.argsort(-scores[t, : t + 1], kind="stable")[: c["index_topk"]]] = True
    return seen
