"""Nemotron-H in float64; `model` is families.Reference."""

from typing import Any

import numpy as np
from reference.experts import mixture
from reference.recurrent import F64, sigmoid

KINDS = {"M": "linear_attention", "*": "full_attention", "-": "mlp", "E": "moe"}
PUZZLE = {"mamba": "linear_attention", "attention": "full_attention", "mlp": "mlp", "moe": "moe"}


def nemotron_h(model: Any, ids: list[int]) -> F64:
    c, x = model.c, model.t["backbone.embeddings.weight"][ids]
    kinds = c.get("layers_block_type") or [KINDS[letter] for letter in c.get("hybrid_override_pattern", "")]
    parts = {"linear_attention": _mamba2, "full_attention": _attention, "mlp": _feed_forward, "moe": _experts}
    blocks = c.get("block_configs")
    kinds = [PUZZLE[block["block_type"]] for block in blocks] if blocks else kinds
    for i, kind in enumerate(kinds):
        if blocks:
            model.c = {**c, **blocks[i]}
        h = model.norm(x, f"backbone.layers.{i}.norm")
        x = x + parts[kind](model, h, f"backbone.layers.{i}.mixer.")
    return model.head(model.norm(x, "backbone.norm_f"), "backbone.embeddings.weight")


def _mamba2(model: Any, h: F64, p: str) -> F64:
    c, rows = model.c, model.linear(h, p + "in_proj")
    y = model.mamba2(rows, p, c["mamba_num_heads"], c["n_groups"], c["ssm_state_size"], True)
    return model.linear(y, p + "out_proj")


def _attention(model: Any, h: F64, p: str) -> F64:
    q, k, v = (model.linear(h, f"{p}{part}_proj") for part in "qkv")
    return model.linear(model.attend(q, k, v, model.c["head_dim"], 0), p + "o_proj")


def _feed_forward(model: Any, h: F64, p: str) -> F64:
    return model.linear(np.maximum(model.linear(h, p + "up_proj"), 0) ** 2, p + "down_proj")


def _experts(model: Any, h: F64, p: str) -> F64:
    """Experts beside a shared one. With a latent size their input is a projection of h, and their sum is projected
    back."""
    c, latent = model.c, bool(model.c.get("moe_latent_size"))
    y = mixture(
        model.linear(h, p + "fc1_latent_proj") if latent else h,
        sigmoid(model.linear(h, p + "gate")),
        model.t[p + "gate.e_score_correction_bias"],
        c["num_experts_per_tok"],
        lambda one, e: _feed_forward(model, one, f"{p}experts.{e}."),
        c.get("norm_topk_prob", True),
        (c.get("n_group", 1), c.get("topk_group", 1)),
    )
    y = y * c.get("routed_scaling_factor", 1.0)
    return (model.linear(y, p + "fc2_latent_proj") if latent else y) + _feed_forward(model, h, p + "shared_experts.")
