"""GPT-NeoX and Falcon in float64; `model` is families.Reference."""

from typing import Any

import numpy as np
from reference.attention import attention, rope
from reference.recurrent import F64
from reference.rope_scaling import scaling
from reference.zamba import gelu_erf


def gelu(name: str, x: F64) -> F64:
    return gelu_erf(x) if name == "gelu" else 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def gptneox(model: Any, ids: list[int]) -> F64:
    c = model.c
    model.eps = c.get("layer_norm_eps", 1e-5)
    x, d = model.t["gpt_neox.embed_in.weight"][ids], c["hidden_size"] // c["num_attention_heads"]
    n_rot, theta = int(d * c.get("rotary_pct", 0.25)), c.get("rotary_emb_base", 1e4)
    for i in range(c["num_hidden_layers"]):
        p = f"gpt_neox.layers.{i}."
        qkv = model.linear(model.layer_norm(x, p + "input_layernorm"), p + "attention.query_key_value")
        q, k, v = qkv.reshape(len(x), -1, 3, d).swapaxes(0, 2).swapaxes(1, 2)
        y = model.linear(_attend(c, q, k, v, n_rot, theta), p + "attention.dense")
        if not c.get("use_parallel_residual", True):
            x, y = x + y, np.zeros_like(y)
        h = model.linear(model.layer_norm(x, p + "post_attention_layernorm"), p + "mlp.dense_h_to_4h")
        x = x + y + model.linear(gelu(c.get("hidden_act", "gelu"), h), p + "mlp.dense_4h_to_h")
    return model.head(model.layer_norm(x, "gpt_neox.final_layer_norm"), "gpt_neox.embed_in.weight")


def falcon(model: Any, ids: list[int]) -> F64:
    c, new = model.c, model.c.get("new_decoder_architecture", False)
    model.eps = c.get("layer_norm_epsilon", 1e-5)
    x, n_head = model.t["transformer.word_embeddings.weight"][ids], c["num_attention_heads"]
    d, n_kv = c["hidden_size"] // n_head, c.get("num_kv_heads", n_head) if new else 1
    for i in range(c["num_hidden_layers"]):
        p = f"transformer.h.{i}."
        norms = ("ln_attn", "ln_mlp") if p + "ln_mlp.weight" in model.t else ("input_layernorm",) * 2
        for_attention, h = (model.layer_norm(x, p + name) for name in norms)
        qkv = model.linear(for_attention, p + "self_attention.query_key_value").reshape(len(x), n_kv, -1, d)
        q, k, v = qkv[:, :, :-2].reshape(len(x), -1, d), qkv[:, :, -2], qkv[:, :, -1]
        y = model.linear(_attend(c, q, k, v, d, model.theta), p + "self_attention.dense")
        h = gelu(c.get("activation", "gelu"), model.linear(h, p + "mlp.dense_h_to_4h"))
        x = x + y + model.linear(h, p + "mlp.dense_4h_to_h")
    return model.head(model.layer_norm(x, "transformer.ln_f"), "transformer.word_embeddings.weight")


def _attend(c: dict[str, Any], q: F64, k: F64, v: F64, n_rot: int, theta: float) -> F64:
    pos = np.arange(len(q))
    factors, magnitude = scaling(c, n_rot, theta, len(q))
    q, k = (rope(part, pos, n_rot, theta, 1.0, factors, True, magnitude) for part in (q, k))
    return attention(q, k, v, pos, q.shape[-1] ** -0.5).reshape(len(q), -1)
