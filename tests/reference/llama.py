"""Llama, and families that differ from it in a few settings in float64; `model` is families.Reference."""

from typing import Any

import numpy as np
from reference.experts import mixture, softmax
from reference.recurrent import F64, silu


def llama(model: Any, ids: list[int]) -> F64:
    """Llama, Qwen2, Qwen3, Qwen3-MoE, Granite, Phi-3, SmolLM3."""
    c = model.c
    x = model.t["model.embed_tokens.weight"][ids] * c.get("embedding_multiplier", 1.0)
    d = c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]
    residual = c.get("residual_multiplier", 1.0)
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        post = p + "input_layernorm.weight" not in model.t  # OLMo 2
        h = x if post else model.norm(x, p + "input_layernorm")
        if p + "self_attn.qkv_proj.weight" in model.t:
            n_q, n_kv = (c[f"num_{name}_heads"] for name in ("attention", "key_value"))
            q, k, v = np.split(model.linear(h, p + "self_attn.qkv_proj"), [n_q * d, (n_q + n_kv) * d], axis=1)
        else:
            q, k, v = (model.linear(h, f"{p}self_attn.{part}_proj").reshape(len(h), -1, d) for part in "qkv")
        if p + "self_attn.q_norm.weight" in model.t:
            if c["architectures"][0].startswith("Olmo"):
                q, k = (part.reshape(len(h), -1) for part in (q, k))
            q, k = model.norm(q, p + "self_attn.q_norm"), model.norm(k, p + "self_attn.k_norm")
        if c.get("clip_qkv"):
            q, k, v = (np.clip(part, -c["clip_qkv"], c["clip_qkv"]) for part in (q, k, v))
        n_rot = int(d * model.part) if model.turned(i) else 0
        y = model.attend(q, k, v, d, n_rot, c.get("attention_multiplier", 0.0), model.window(i))
        y = model.linear(y, p + "self_attn.o_proj")
        x = x + residual * (model.norm(y, p + "post_attention_layernorm") if post else y)
        h, m = x if post else model.norm(x, p + "post_attention_layernorm"), p + "mlp."
        if m + "gate.weight" in model.t:
            y = mixture(
                h,
                softmax(model.linear(h, m + "gate")),
                0.0,
                c["num_experts_per_tok"],
                lambda one, e, m=m: model.gated(one, f"{m}experts.{e}."),
                c.get("norm_topk_prob", False),
            )
        elif c["architectures"][0].startswith("GraniteMoe"):
            y = _granite_feed_forward(model, h, p)
        elif m + "gate_up_proj.weight" in model.t:
            gate, up = np.split(model.linear(h, m + "gate_up_proj"), 2, axis=1)
            y = model.linear(silu(gate) * up, m + "down_proj")
        else:
            y = model.gated(h, m)
        x = x + residual * (model.norm(y, p + "post_feedforward_layernorm") if post else y)
    return model.head(model.norm(x, "model.norm"), "model.embed_tokens.weight") / c.get("logits_scaling", 1.0)


def _granite_feed_forward(model: Any, h: F64, p: str) -> F64:
    """Gate and up are one tensor in checkpoints; here they are the parts into which the converter splits it."""
    if p + "shared_mlp.output_linear.weight" in model.t:
        gate, up = (h @ model.t[f"{p}shared_mlp.input_linear.weight.{part}"].T for part in ("gate", "up"))
        return model.linear(silu(gate) * up, p + "shared_mlp.output_linear")
    m = p + "block_sparse_moe."

    def expert(one: F64, e: int) -> F64:
        gate, up = (one @ model.t[f"{m}input_linear.weight.{part}.{e}"].T for part in ("gate", "up"))
        return (silu(gate) * up) @ model.t[m + "output_linear.weight"][e].T

    scores = softmax(model.linear(h, m + "router.layer"))
    return mixture(h, scores, 0.0, model.c["num_experts_per_tok"], expert)
