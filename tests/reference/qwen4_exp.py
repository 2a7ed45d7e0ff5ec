"""Qwen3.8-Flash-Next in float64; `model` is families.Reference."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from reference.attention import attention, rope
from reference.experts import mixture, softmax
from reference.recurrent import F64, sigmoid, silu
from reference.selection import best, index_scores, tokens_of

GAMMA, MASK = 0x9E3779B97F4A7C15, (1 << 64) - 1


def rms(x: F64, weight: F64, eps: float) -> F64:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def qwen4_exp(model: Any, ids: list[int]) -> F64:
    """Logits [tok, vocabulary]."""
    return ended(model, streams(model, ids), "model.hyper_connection_mixer.")


def streams(model: Any, ids: list[int]) -> F64:
    """The streams after the layers, [tok, stream, n]."""
    c = model.c
    x = np.repeat(model.t["model.embed_tokens.weight"][ids][:, None], c["hc_count"], axis=1)
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        if i + 1 in (c.get("ple_layer_ids") or []):
            x = x + ngram_inputs(model, x, ids, p + "ple.", c["ple_layer_ids"].index(i + 1))
        x = layer(model, x, p)
    return x


def layer(model: Any, x: F64, p: str) -> F64:
    """Streams x after a layer, without its n-grams."""
    h, weights = mixed(model, x, p + "attn_hyper_connection.")
    if p + "self_attn.q_proj.weight" in model.t:
        y = indexed_attention(model, h, p + "self_attn.")
    else:
        y = model.delta_net(h, p + "linear_attn.", model.c.get("output_gate_type") or "silu")
    x = x + weights[:, :, None] * y[:, None]
    h, weights = mixed(model, x, p + "mlp_hyper_connection.")
    return x + weights[:, :, None] * experts(model, h, p + "mlp.")[:, None]


def ended(model: Any, x: F64, p: str) -> F64:
    """Logits of streams, collapsed by the mixer p."""
    return model.head(mixed(model, x, p)[0], "model.embed_tokens.weight")


def mixed(model: Any, x: F64, p: str) -> tuple[F64, F64]:
    """From streams x [tok, stream, n]: the input [tok, n] of a sublayer, and weights [tok, stream] of its output."""
    n_stream = x.shape[1]
    flat = rms(x, 1 + model.t[p + "hc_norm.weight"].reshape(n_stream, -1), model.eps).reshape(len(x), -1)
    low = silu(model.linear(flat, p + "input_mix_weight_down") / n_stream)
    gates = sigmoid(model.linear(low, p + "input_mix_weight_up"))
    out = (gates * flat).reshape(x.shape).mean(1)
    if p + "block_inject_weight.weight" not in model.t:
        return out, np.zeros(0)
    return out, 2 * sigmoid(model.linear(flat, p + "block_inject_weight") / n_stream)


def experts(model: Any, h: F64, p: str) -> F64:
    """The experts, including the shared one."""
    c = model.c
    y = mixture(
        h,
        softmax(model.linear(h, p + "gate")),
        0.0,
        c["num_experts_per_tok"],
        lambda one, e: model.gated(one, f"{p}experts.{e}."),
        c.get("norm_topk_prob", True),
    )
    return y + sigmoid(model.linear(h, p + "shared_expert_gate")) * model.gated(h, p + "shared_expert.")


def indexed_attention(model: Any, h: F64, p: str) -> F64:
    """Gated attention over the tokens that the indexer selects for each token."""
    d, n = model.c["head_dim"], len(h)
    q, k, v = (model.linear(h, f"{p}{part}_proj").reshape(n, -1, d) for part in "qkv")
    q, gate = q[:, ::2], q[:, 1::2]
    n_rot, pos = int(d * model.part), np.arange(n)
    q, k = model.norm(q, p + "q_norm", 1.0), model.norm(k, p + "k_norm", 1.0)
    q, k = (rope(x, pos, n_rot, model.theta, neox=True) for x in (q, k))
    chosen = choices(model, h, p + "indexer.", n_rot)
    y = np.concatenate(
        [attention(q[t : t + 1], k[seen], v[seen], np.array([len(seen) - 1]), d**-0.5) for t, seen in enumerate(chosen)]
    )
    return model.linear((y * sigmoid(gate)).reshape(n, -1), p + "o_proj")


def choices(model: Any, h: F64, p: str, n_rot: int) -> list[list[int]]:
    """For every token the tokens that it attends to."""
    c = model.c
    d, every = c["indexer_head_dim"], c["indexer_compress_ratio"]
    both = (h @ projection(model, p).T).reshape(len(h), -1, d)
    q = rope(model.norm(both[:, :-1], p + "q_layernorm", 1.0), np.arange(len(h)), n_rot, model.theta, neox=True)
    n = len(h) // every
    keys = model.norm(both[: n * every, -1].reshape(n, every, d).mean(1), p + "k_layernorm", 1.0)
    keys = rope(keys[:, None], np.arange(n) * every, n_rot, model.theta, neox=True)[:, 0]
    lists = []
    for t in range(len(h)):
        scores = index_scores(q[t], keys[: (t + 1) // every], d**-0.5)
        lists.append(tokens_of(best(scores, c["indexer_budget"] // every), every, t))
    return lists


def projection(model: Any, p: str) -> F64:
    """The matrix of index queries and keys; random checkpoints have two parts, as the converter sees them."""
    name = p + "index_qk_proj.weight"
    return model.t[name] if name in model.t else np.concatenate([model.t[f"{name}.{i}"] for i in range(2)])


# --- n-grams ---
def ngram_inputs(model: Any, x: F64, ids: list[int], p: str, module: int) -> F64:
    """A layer's term that is added to the streams x [tok, stream, n] before its other parts."""
    c, n_stream = model.c, x.shape[1]
    rows = ngram_rows(c, ids, module)
    table, e = shards(model, p + "ple_embedding.ngram_embedding."), len(ids)
    embedded = table[rows].reshape(e, -1)

    def norm(y: F64, name: str) -> F64:
        weight = 1 + model.t[f"{p}{name}.weight"].reshape(n_stream, -1)
        return rms(y.reshape(e, n_stream, -1), weight, model.eps)

    value = model.linear(embedded, p + "value_proj")
    gated = gate_streams(norm(model.linear(embedded, p + "key_proj"), "norm_key"), norm(x, "norm_query"), value)
    return gated + silu(dilated(norm(gated, "norm_conv"), model.t[p + "conv1d.weight"], c["ngram_size"]))


def shards(model: Any, p: str) -> F64:
    n = sum(name.startswith(p + "shard_") for name in model.t)
    return np.concatenate([model.t[f"{p}shard_{i}.weight"] for i in range(n)])


def gate_streams(key: F64, query: F64, value: F64) -> F64:
    """key, query [tok, stream, n], value [tok, n] -> [tok, stream, n]"""
    g = (key * query).sum(-1) / math.sqrt(key.shape[-1])
    g = np.sign(g) * np.sqrt(np.maximum(abs(g), 1e-6))
    return sigmoid(g)[:, :, None] * value[:, None]


def dilated(x: F64, w: F64, step: int) -> F64:
    """Causal depthwise convolution of x [tok, stream, n] with taps w [stream * n, 1, tap], `step` tokens apart."""
    taps = w[:, 0].T.reshape(-1, *x.shape[1:])
    y = np.zeros_like(x)
    for back, tap in enumerate(taps[::-1]):
        shift = back * step
        if shift < len(x):
            y[shift:] += tap * x[: len(x) - shift]
    return y


def constants(c: dict[str, Any], module: int) -> tuple[list[int], list[int], list[int]]:
    """Factors of tokens, sizes and offsets of the parts of the table."""
    half = max(1, ((1 << 63) - 1) // c["vocab_size"] // 2)
    factors = []
    for i in range(c["ngram_size"]):
        z = (c.get("seed", 1234) + 10007 * module + GAMMA * (i + 2)) & MASK
        z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ z >> 27) * 0x94D049BB133111EB) & MASK
        factors.append(2 * ((z ^ z >> 31) % half) + 1)
    n_head = (c["ngram_size"] - 1) * c["heads_per_ngram"]
    found, number = [], c["ngram_vocab_size_base"]
    while len(found) < (module + 1) * n_head:
        if number > 1 and all(number % i for i in range(2, math.isqrt(number) + 1)):
            found.append(number)
        number += 1
    sizes = found[module * n_head :]
    return factors, sizes, [sum(sizes[:i]) for i in range(n_head)]


def hashed(ids: list[int], n_each: int, end: int, factors: list[int], sizes: list[int], offsets: list[int]) -> list:
    """Rows [tok][head] of the table; factors below 2^63 / vocabulary."""
    rows = []
    for t in range(len(ids)):
        tokens = []
        for back in range(len(factors)):
            ended = any(i < 0 or ids[i] == end for i in range(t - back, t))
            tokens.append(end if ended else ids[t - back])
        row = []
        for head, (size, offset) in enumerate(zip(sizes, offsets, strict=True)):
            mix = 0
            for token, factor in zip(tokens[: head // n_each + 2], factors, strict=False):
                mix ^= token * factor
            row.append(mix % size + offset)
        rows.append(row)
    return rows


def ngram_rows(c: dict[str, Any], ids: list[int], module: int) -> npt.NDArray[np.int64]:
    end = c["eos_token_id"][0] if isinstance(c["eos_token_id"], list) else c["eos_token_id"]
    return np.array(hashed(ids, c["heads_per_ngram"], end, *constants(c, module)))
