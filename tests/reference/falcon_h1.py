"""Falcon-H1 in float64; `model` is families.Reference."""

from typing import Any

import numpy as np
from reference.recurrent import F64, silu

MULTIPLIERS = (
    "key_multiplier",
    "attention_in_multiplier",
    "attention_out_multiplier",
    "ssm_in_multiplier",
    "ssm_out_multiplier",
    "embedding_multiplier",
    "lm_head_multiplier",
)


def falcon_h1(model: Any, ids: list[int]) -> F64:
    c = dict.fromkeys(MULTIPLIERS, 1.0) | {"mlp_multipliers": [1, 1], "ssm_multipliers": [1] * 5} | model.c
    x = model.t["model.embed_tokens.weight"][ids] * c["embedding_multiplier"]
    d = c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]
    n_head, groups = c["mamba_n_heads"], c["mamba_n_groups"] * c["mamba_d_state"]
    sizes = (c["mamba_d_ssm"], c["mamba_d_ssm"], groups, groups, n_head)
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        h = model.norm(x, p + "input_layernorm")
        q, k, v = (model.linear(h * c["attention_in_multiplier"], f"{p}self_attn.{part}_proj") for part in "qkv")
        heads = model.attend(q, k * c["key_multiplier"], v, d, d)
        x = x + model.linear(heads, p + "self_attn.o_proj") * c["attention_out_multiplier"]
        rows = model.linear(h * c["ssm_in_multiplier"], p + "mamba.in_proj") * np.repeat(c["ssm_multipliers"], sizes)
        y = model.mamba2(
            rows, p + "mamba.", n_head, c["mamba_n_groups"], c["mamba_d_state"], c.get("mamba_rms_norm", False)
        )
        x = x + model.linear(y, p + "mamba.out_proj") * c["ssm_out_multiplier"]
        h, m = model.norm(x, p + "pre_ff_layernorm"), p + "feed_forward."
        y = model.linear(h, m + "up_proj") * silu(model.linear(h, m + "gate_proj") * c["mlp_multipliers"][0])
        x = x + model.linear(y, m + "down_proj") * c["mlp_multipliers"][1]
    x = model.norm(x, "model.final_layernorm")
    return model.head(x, "model.embed_tokens.weight") * c["lm_head_multiplier"]
