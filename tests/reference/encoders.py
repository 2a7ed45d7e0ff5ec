"""Encoders in float64, from a checkpoint's own names and its config: slow and obvious."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]


def layer_norm(x: F64, weight: F64, bias: F64, eps: float) -> F64:
    away = x - x.mean(-1, keepdims=True)
    return away / np.sqrt((away**2).mean(-1, keepdims=True) + eps) * weight + bias


def gelu(x: F64) -> F64:
    return x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2


def bert(config: dict[str, Any], tensors: dict[str, NDArray], ids: list[int], second: int | None = None) -> F64:
    """The rows after the last layer, f64 [tok, n_embd]. second: the index at which the second text of a pair begins."""
    t = {name: np.asarray(x, np.float64) for name, x in tensors.items()}
    n_head, eps = config["num_attention_heads"], config["layer_norm_eps"]

    def linear(x: F64, name: str) -> F64:
        return x @ t[name + ".weight"].T + t[name + ".bias"]

    def norm(x: F64, name: str) -> F64:
        return layer_norm(x, t[name + ".weight"], t[name + ".bias"], eps)

    p = "embeddings."
    x = t[p + "word_embeddings.weight"][ids] + t[p + "position_embeddings.weight"][: len(ids)]
    n_first = len(ids) if second is None or config["type_vocab_size"] == 1 else second
    types = [0] * n_first + [1] * (len(ids) - n_first)
    x = norm(x + t[p + "token_type_embeddings.weight"][types], p + "LayerNorm")
    for i in range(config["num_hidden_layers"]):
        p = f"encoder.layer.{i}."
        q, k, v = (
            linear(x, f"{p}attention.self.{part}").reshape(len(ids), n_head, -1).swapaxes(0, 1)
            for part in ("query", "key", "value")
        )
        scores = q @ k.swapaxes(1, 2) / math.sqrt(q.shape[2])
        weights = np.exp(scores - scores.max(2, keepdims=True))
        heads = (weights / weights.sum(2, keepdims=True)) @ v
        y = linear(heads.swapaxes(0, 1).reshape(x.shape), p + "attention.output.dense")
        x = norm(x + y, p + "attention.output.LayerNorm")
        y = linear(gelu(linear(x, p + "intermediate.dense")), p + "output.dense")
        x = norm(x + y, p + "output.LayerNorm")
    return x


def bert_scores(config: dict[str, Any], tensors: dict[str, NDArray], ids: list[int], second: int) -> F64:
    """The scores of a pair by BertForSequenceClassification or RobertaForSequenceClassification, f64 [labels]."""
    t = {name: np.asarray(x, np.float64) for name, x in tensors.items()}
    roberta = "classifier.dense.weight" in t
    dense, out = ("classifier.dense", "classifier.out_proj") if roberta else ("pooler.dense", "classifier")
    x = np.tanh(t[dense + ".weight"] @ bert(config, tensors, ids, second)[0] + t[dense + ".bias"])
    scores: F64 = t[out + ".weight"] @ x + t[out + ".bias"]
    return scores


def rotated(x: F64, base: float) -> F64:
    """RoPE of x [tok, head, d_head]: pairs of values i and i + d_head / 2."""
    n, half = len(x), x.shape[2] // 2
    angles = np.outer(np.arange(n), base ** (-np.arange(half) / half))[:, None]
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * np.cos(angles) - b * np.sin(angles), b * np.cos(angles) + a * np.sin(angles)], 2)


def attention(q: F64, k: F64, v: F64, scale: float, half: int | None) -> F64:
    """Attention of [tok, head, d_head] among all tokens, or up to `half` tokens away."""
    distance = np.abs(np.arange(len(q))[:, None] - np.arange(len(q)))
    scores = np.einsum("qhd,khd->hqk", q, k) * scale
    if half is not None:
        scores = np.where(distance <= half, scores, -np.inf)
    weights = np.exp(scores - scores.max(2, keepdims=True))
    out: F64 = np.einsum("hqk,khd->qhd", weights / weights.sum(2, keepdims=True), v).reshape(len(q), -1)
    return out


def modern_bert(config: dict[str, Any], tensors: dict[str, NDArray], ids: list[int], second: int | None = None) -> F64:
    """The rows after the last norm, f64 [tok, n_embd]."""
    t = {name: np.asarray(x, np.float64) for name, x in tensors.items()}
    n_head, eps = config["num_attention_heads"], config.get("norm_eps", 1e-5)
    act = gelu if config.get("hidden_activation", "gelu") == "gelu" else lambda x: x / (1 + np.exp(-x))
    ropes = config.get("rope_parameters", {})

    def norm(x: F64, name: str) -> F64:
        return layer_norm(x, t[name + ".weight"], np.zeros(x.shape[-1]), eps)

    x = norm(t["embeddings.tok_embeddings.weight"][ids], "embeddings.norm")
    for i in range(config["num_hidden_layers"]):
        p = f"layers.{i}."
        full = i % config.get("global_attn_every_n_layers", 3) == 0
        kind, old, usual = ("full", "global", 160000.0) if full else ("sliding", "local", 10000.0)
        base = ropes.get(f"{kind}_attention", {}).get("rope_theta", config.get(f"{old}_rope_theta", usual))
        y = norm(x, p + "attn_norm") if i else x
        q, k, v = (y @ t[p + "attn.Wqkv.weight"].T).reshape(len(ids), 3, n_head, -1).swapaxes(0, 1)
        half = None if full else config["local_attention"] // 2
        y = attention(rotated(q, base), rotated(k, base), v, q.shape[2] ** -0.5, half)
        x = x + y @ t[p + "attn.Wo.weight"].T
        gate, up = np.split(norm(x, p + "mlp_norm") @ t[p + "mlp.Wi.weight"].T, 2, axis=1)
        x = x + (act(gate) * up) @ t[p + "mlp.Wo.weight"].T
    return norm(x, "final_norm")


def modern_bert_scores(config: dict[str, Any], tensors: dict[str, NDArray], ids: list[int]) -> F64:
    """The scores of ModernBertForSequenceClassification, f64 [labels]."""
    t, eps = {name: np.asarray(x, np.float64) for name, x in tensors.items()}, config.get("norm_eps", 1e-5)
    rows = modern_bert(config, tensors, ids)
    x = rows.mean(0) if config.get("classifier_pooling") == "mean" else rows[0]
    x = layer_norm(gelu(t["head.dense.weight"] @ x), t["head.norm.weight"], np.zeros(len(x)), eps)
    scores: F64 = t["classifier.weight"] @ x + t["classifier.bias"]
    return scores


def embedding_gemma(config: dict[str, Any], tensors: dict[str, NDArray], ids: list[int]) -> F64:
    """The rows after the last norm, f64 [tok, n_embd]."""
    t = {name: np.asarray(x, np.float64) for name, x in tensors.items()}
    d_head, n_tok = config["head_dim"], len(ids)

    def norm(x: F64, name: str) -> F64:
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + config["rms_norm_eps"]) * (1 + t[name + ".weight"])

    x = t["model.embed_tokens.weight"][ids] * math.sqrt(config["hidden_size"])
    for i in range(config["num_hidden_layers"]):
        p, full = f"model.layers.{i}.", config["layer_types"][i] == "full_attention"
        base = config["rope_theta" if full else "rope_local_base_freq"]
        y = norm(x, p + "input_layernorm")
        q, k, v = ((y @ t[f"{p}self_attn.{part}_proj.weight"].T).reshape(n_tok, -1, d_head) for part in "qkv")
        q, k = (rotated(norm(z, f"{p}self_attn.{part}_norm"), base) for part, z in (("q", q), ("k", k)))
        k, v = (np.repeat(z, q.shape[1] // z.shape[1], 1) for z in (k, v))
        half = None if full else config["sliding_window"] // 2
        y = attention(q, k, v, config["query_pre_attn_scalar"] ** -0.5, half) @ t[p + "self_attn.o_proj.weight"].T
        x = x + norm(y, p + "post_attention_layernorm")
        y = norm(x, p + "pre_feedforward_layernorm")
        gate, up = (y @ t[f"{p}mlp.{part}_proj.weight"].T for part in ("gate", "up"))
        act = gate * (1 + np.tanh(math.sqrt(2 / math.pi) * (gate + 0.044715 * gate**3))) / 2
        x = x + norm((act * up) @ t[p + "mlp.down_proj.weight"].T, p + "post_feedforward_layernorm")
    return norm(x, "model.norm")


def rows(config: dict[str, Any], tensors: dict[str, NDArray], ids: list[int], second: int) -> F64:
    """The rows after the last layer, f64 [tok, n_embd]."""
    name = config["architectures"][0]
    if name == "Gemma3TextModel":
        return embedding_gemma(config, tensors, ids)
    return (modern_bert if name.startswith("ModernBert") else bert)(config, tensors, ids, second)


def encoder(config: dict[str, Any], tensors: dict[str, NDArray], ids: list[int], second: int) -> F64:
    """The scores of a pair if the model has a head, else the rows after the last layer."""
    name = config["architectures"][0]
    if not name.endswith("ForSequenceClassification"):
        return rows(config, tensors, ids, second)
    if name.startswith("ModernBert"):
        return modern_bert_scores(config, tensors, ids)
    return bert_scores(config, tensors, ids, second)
