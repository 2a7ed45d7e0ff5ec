"""Ling 1 (arXiv:2503.05139), 2.0 (arXiv:2510.22115), its linear models (arXiv:2510.19338) and Ling 2.5 in float64, by
the published code of inclusionAI; `model` is families.Reference."""

import math
from typing import Any

import numpy as np
from reference.attention import attention, rope
from reference.experts import mixture, softmax
from reference.kimi import latent_attention
from reference.minimax import lightning
from reference.recurrent import F64, sigmoid
from reference.rope_scaling import scaling


def ling(model: Any, ids: list[int]) -> F64:
    """Logits [tok, vocabulary]."""
    x = model.t["model.word_embeddings.weight"][ids]
    for i in range(model.c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        h, mixer = model.norm(x, p + "input_layernorm"), p + "attention."
        if is_lightning(model.c, i):
            x = x + lightning_attention(model, h, mixer, i)
        elif mixer + "kv_a_proj_with_mqa.weight" in model.t:
            n = model.c["qk_rope_head_dim"]
            x = x + latent_attention(model, h, mixer, model.theta ** (-np.arange(0, n, 2) / n))
        else:
            x = x + softmax_attention(model, h, mixer)
        x = x + feed_forward(model, model.norm(x, p + "post_attention_layernorm"), p + "mlp.")
    x = model.norm(x, "model.norm")
    if model.c.get("norm_head"):
        matrix = model.t["lm_head.weight"]
        return x @ (matrix / np.maximum(np.linalg.norm(matrix, axis=0), 1e-7)).T
    return model.head(x, "model.word_embeddings.weight")


def is_lightning(c: dict[str, Any], i: int) -> bool:
    if "layer_group_size" not in c:
        return False
    size = c["layer_group_size"]
    return not ((i + 1) % size == 0 or i >= c["num_hidden_layers"] // size * size)


def heads(model: Any, x: F64, p: str, n_kv: int) -> tuple[F64, F64, F64]:
    """Queries, keys and values [tok, head, d], normalized and rotated."""
    c, pos = model.c, np.arange(len(x))
    n_head = c["num_attention_heads"]
    d = c.get("head_dim") or c["hidden_size"] // n_head
    if (
        p + "query_key_value.weight.0" in model.t
    ):  # random checkpoints hold the parts into which the converter splits it
        qkv = np.concatenate([x @ model.t[f"{p}query_key_value.weight.{part}"].T for part in range(3)], 1)
    else:
        qkv = model.linear(x, p + "query_key_value")
    qkv = qkv.reshape(len(x), n_head + 2 * n_kv, d)
    q, k, v = qkv[:, :n_head], qkv[:, n_head : n_head + n_kv], qkv[:, n_head + n_kv :]
    n_rot = int(d * model.part)
    factors, magnitude = scaling(c, n_rot, model.theta, len(x))
    if p + "query_layernorm.weight" in model.t:
        q, k = model.norm(q, p + "query_layernorm"), model.norm(k, p + "key_layernorm")
    q, k = (rope(y, pos, n_rot, model.theta, 1.0, factors, True, magnitude) for y in (q, k))
    return q, k, v


def softmax_attention(model: Any, x: F64, p: str) -> F64:
    q, k, v = heads(model, x, p, model.c["num_key_value_heads"])
    y = attention(q, k, v, np.arange(len(x)), q.shape[2] ** -0.5)
    return model.linear(y.reshape(len(x), -1), p + "dense")


def lightning_attention(model: Any, x: F64, p: str, i: int) -> F64:
    c, n = model.c, len(x)
    q, k, v = heads(model, x, p, c["num_attention_heads"])
    rates = np.array(slopes(q.shape[1])) * (1 - (i - 1) / (c["num_hidden_layers"] - 1) + 1e-5)
    y = lightning(q * q.shape[2] ** -0.5, k, v, np.exp(-rates)).reshape(n, c["group_norm_size"], -1)
    y = (y / np.sqrt((y * y).mean(-1, keepdims=True) + model.eps)).reshape(n, -1) * model.t[p + "g_norm.weight"]
    return model.linear(y * sigmoid(model.linear(x, p + "g_proj")), p + "dense")


def slopes(n: int) -> list[float]:
    """ALiBi's slopes, by recursion for numbers of heads that are no power of two."""
    exponent = math.log2(n)
    if exponent.is_integer():
        start = 2 ** -(2 ** -(exponent - 3))
        return [start ** (j + 1) for j in range(n)]
    low = 2 ** math.floor(exponent)
    return slopes(low) + slopes(2 * low)[0::2][: n - low]


def feed_forward(model: Any, x: F64, m: str) -> F64:
    c = model.c
    if m + "gate.weight" not in model.t:
        return model.gated(x, m)
    logits, bias = model.linear(x, m + "gate"), model.t.get(m + "gate.expert_bias")
    y = mixture(
        x,
        softmax(logits) if bias is None else sigmoid(logits),
        0.0 if bias is None else bias,
        c["num_experts_per_tok"],
        lambda one, e: model.gated(one, f"{m}experts.{e}."),
        c.get("norm_topk_prob", True),
        (c["n_group"], c["topk_group"]),
    )
    return y * c["routed_scaling_factor"] + model.gated(x, m + "shared_experts.")
