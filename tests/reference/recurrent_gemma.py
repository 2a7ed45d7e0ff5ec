"""RecurrentGemma in float64; `model` is families.Reference."""

from typing import Any

import numpy as np
from reference.gemma4 import gelu
from reference.recurrent import F64, conv1d, rg_lru


def recurrent_gemma(model: Any, ids: list[int]) -> F64:
    c, x = model.c, model.t["model.embed_tokens.weight"][ids]
    bits = np.float32(c["hidden_size"] ** 0.5).view(np.uint32)  # rounded to BF16
    x = x * np.float64(np.uint32(bits + 0x7FFF + (bits >> 16 & 1) & 0xFFFF0000).view(np.float32))
    d, kinds = c["head_dim"], c["block_types"]
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}.temporal_block."
        h = model.norm(x, f"model.layers.{i}.temporal_pre_norm", 1.0)
        if kinds[i % len(kinds)] == "attention":
            q, k, v = (model.linear(h, f"{p}{part}_proj") for part in "qkv")
            y = model.attend(q, k, v, d, d // 2, window=c["attention_window_size"])
            x = x + model.linear(y, p + "o_proj")
        else:
            taps, inner = model.t[p + "conv_1d.weight"][:, 0].T, model.linear(h, p + "linear_x")
            inner, _ = conv1d(inner, taps, model.t[p + "conv_1d.bias"], np.zeros((len(taps) - 1, len(taps.T))))
            r, gate = (_blocks(model, inner, f"{p}rg_lru.{name}_gate_") for name in ("recurrent", "input"))
            rate = -8 * np.logaddexp(0, model.t[p + "rg_lru.recurrent_param"])
            zero = np.zeros(inner.shape[1])
            y, _ = rg_lru(inner, r, zero, gate, zero, rate, zero, fresh=True)
            x = x + model.linear(y * gelu(model.linear(h, p + "linear_y")), p + "linear_out")
        m = f"model.layers.{i}.mlp_block."
        h = model.norm(x, f"model.layers.{i}.channel_pre_norm", 1.0)
        x = x + model.linear(gelu(model.linear(h, m + "gate_proj")) * model.linear(h, m + "up_proj"), m + "down_proj")
    y, cap = model.head(model.norm(x, "model.final_norm", 1.0), "model.embed_tokens.weight"), c["logits_soft_cap"]
    return cap * np.tanh(y / cap)


def _blocks(model: Any, x: F64, p: str) -> F64:
    """Block-diagonal product: each head of x times its own matrix."""
    weight, bias = model.t[p + "weight"], model.t[p + "bias"]
    heads = x.reshape(len(x), len(weight), -1)
    return np.stack([heads[:, h] @ w + bias[h] for h, w in enumerate(weight)], axis=1).reshape(x.shape)
