"""DeepSeek-V2 (arXiv:2405.04434) and V3 (arXiv:2412.19437) in float64; `model` is families.Reference."""

import math
from typing import Any

import numpy as np
from reference.experts import mixture, softmax
from reference.kimi import latent_attention
from reference.recurrent import F64, sigmoid
from reference.rope_scaling import scaling


def deepseek(model: Any, ids: list[int]) -> F64:
    """Logits [tok, vocabulary]."""
    x = model.t["model.embed_tokens.weight"][ids]
    for i in range(model.c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        x = x + latent_attention(model, model.norm(x, p + "input_layernorm"), p + "self_attn.", *turns(model.c))
        x = x + feed_forward(model, model.norm(x, p + "post_attention_layernorm"), p + "mlp.")
    return model.head(model.norm(x, "model.norm"), "model.embed_tokens.weight")


def turns(c: dict[str, Any]) -> tuple[F64, float]:
    """Radians per position of every pair, and the factor of scores."""
    n, rope = c["qk_rope_head_dim"], c.get("rope_scaling")
    plain = c["rope_theta"] ** (-np.arange(0, n, 2) / n)
    if not rope:
        return plain, 1.0
    factors, magnitude = scaling(c, n, c["rope_theta"], 0)
    assert magnitude == 1, "what cos and sin grow by cancels out"
    return plain / factors, (0.1 * rope["mscale_all_dim"] * math.log(rope["factor"]) + 1) ** 2


def feed_forward(model: Any, x: F64, m: str) -> F64:
    c = model.c
    if m + "gate.weight" not in model.t:
        return model.gated(x, m)

    def expert(one: F64, e: int) -> F64:
        return model.gated(one, f"{m}experts.{e}.")

    logits, bias = model.linear(x, m + "gate"), model.t.get(m + "gate.e_score_correction_bias")
    if bias is None:
        scores, groups = softmax(logits), (c.get("n_group") or 1, c.get("topk_group") or 1)
        chosen = within_best(scores, *groups) if c.get("topk_method") == "group_limited_greedy" else scores
        n_used, kept = c["num_experts_per_tok"], chosen - scores
        rows = [mixture(x[t : t + 1], scores[t : t + 1], kept[t], n_used, expert, norm=False) for t in range(len(x))]
        y = np.concatenate(rows)
    else:
        groups = (c["n_group"], c["topk_group"])
        y = mixture(x, sigmoid(logits), bias, c["num_experts_per_tok"], expert, c.get("norm_topk_prob", True), groups)
    return y * c["routed_scaling_factor"] + model.gated(x, m + "shared_experts.")


def within_best(scores: F64, n_group: int, n_used: int) -> F64:
    """Scores [tok, expert], -1 outside of the groups with the best experts."""
    groups = scores.reshape(len(scores), n_group, -1)
    kept = np.argsort(-groups.max(2), axis=1, kind="stable")[:, :n_used]
    out = np.full_like(groups, -1)
    for t, best in enumerate(kept):
        out[t, best] = groups[t, best]
    return out.reshape(scores.shape)
