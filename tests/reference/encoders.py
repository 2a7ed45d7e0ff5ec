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


def encoder(config: dict[str, Any], tensors: dict[str, NDArray], ids: list[int], second: int) -> F64:
    """The scores of a pair if the model has a head, else the rows after the last layer."""
    scores = config["architectures"][0].endswith("ForSequenceClassification")
    return (bert_scores if scores else bert)(config, tensors, ids, second)
