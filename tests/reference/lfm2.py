"""LFM2 and its models with experts in float64; `model` is families.Reference."""

from typing import Any

import numpy as np
from reference.experts import mixture
from reference.recurrent import F64, conv1d_gated, sigmoid


def lfm2(model: Any, ids: list[int]) -> F64:
    c, x = model.c, model.t["model.embed_tokens.weight"][ids]
    d = c["hidden_size"] // c["num_attention_heads"]
    for i, kind in enumerate(c["layer_types"]):
        p = f"model.layers.{i}."
        h = model.norm(x, p + "operator_norm")
        if kind == "conv":
            before, after, inner = np.split(model.linear(h, p + "conv.in_proj"), 3, axis=1)
            taps = model.t[p + "conv.conv.weight"][:, 0].T
            bias = model.t.get(p + "conv.conv.bias", np.float64(0))
            y, _ = conv1d_gated(inner, before, after, taps, bias, np.zeros((len(taps) - 1, len(taps.T))))
            x = x + model.linear(y, p + "conv.out_proj")
        else:
            q, k, v = (model.linear(h, f"{p}self_attn.{part}_proj").reshape(len(h), -1, d) for part in "qkv")
            q, k = model.norm(q, p + "self_attn.q_layernorm"), model.norm(k, p + "self_attn.k_layernorm")
            x = x + model.linear(model.attend(q, k, v, d, d), p + "self_attn.out_proj")
        h, m = model.norm(x, p + "ffn_norm"), p + "feed_forward."
        if m + "gate.weight" in model.t:
            scores, bias = sigmoid(model.linear(h, m + "gate")), model.t.get(m + "expert_bias", 0.0)
            x = x + c.get("routed_scaling_factor", 1.0) * mixture(
                h,
                scores,
                bias,
                c["num_experts_per_tok"],
                lambda one, e, m=m: model.gated(one, f"{m}experts.{e}.", "w1", "w3", "w2"),
                c.get("norm_topk_prob", True),
            )
        else:
            x = x + model.gated(h, m, "w1", "w3", "w2")
    return model.head(model.norm(x, "model.embedding_norm"), "model.embed_tokens.weight")
