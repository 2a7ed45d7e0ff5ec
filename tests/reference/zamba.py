"""Zamba (arXiv:2405.16712) and Zamba2 (arXiv:2411.15242) in float64; `model` is families.Reference."""

import math
from typing import Any

import numpy as np
from reference.mamba import convolved
from reference.recurrent import F64, mamba1_scan


def gelu_erf(x: F64) -> F64:
    return 0.5 * x * np.vectorize(math.erfc)(-x / math.sqrt(2))


def zamba(model: Any, ids: list[int]) -> F64:
    """Zamba and Zamba2."""
    c, embedded = model.c, model.t["model.embed_tokens.weight"][ids]
    x, users = embedded, [i for i, kind in enumerate(c["layers_block_type"]) if kind == "hybrid"]
    for i in range(c["num_hidden_layers"]):
        p, h = f"model.layers.{i}.", x
        if i in users:
            h = x + model.linear(shared_block(model, np.hstack([x, embedded]), users, users.index(i)), p + "linear")
            p += "mamba_decoder."
        h = model.norm(h, p + "input_layernorm")
        if p + "mamba.x_proj_weight" in model.t:
            y = heads_of_mamba1(model, model.linear(h, p + "mamba.in_proj"), p + "mamba.")
        else:
            rows, sizes = model.linear(h, p + "mamba.in_proj"), ("n_mamba_heads", "mamba_ngroups", "mamba_d_state")
            y = model.mamba2(rows, p + "mamba.", *(c[name] for name in sizes), normed=True)
        x = x + model.linear(y, p + "mamba.out_proj")
    return model.head(model.norm(x, "model.final_layernorm"), "model.embed_tokens.weight")


def shared_block(model: Any, x: F64, users: list[int], k: int) -> F64:
    """The output of the transformer block that its k-th user shares, with the user's adapters."""
    c, d = model.c, x.shape[1] // model.c["num_attention_heads"]
    two = "num_mem_blocks" in c
    name = "shared_transformer" if two else "shared_transf"
    own = f"model.layers.{users[k]}.{name}."  # of untied models
    there = own + "self_attn.q_proj.weight" in model.t
    p = own if there else f"model.layers.{users[k % c.get('num_mem_blocks', 1)]}.{name}."

    def adapted(h: F64, name: str, adapter: str) -> F64:
        y = model.linear(h, p + name)
        if f"{p}{adapter}_adapter_list.{k}.0.weight" in model.t:
            y = y + model.linear(
                model.linear(h, f"{p}{adapter}_adapter_list.{k}.0"), f"{p}{adapter}_adapter_list.{k}.1"
            )
        return y

    h = model.norm(x, p + "input_layernorm")
    q, k_, v = (adapted(h, f"self_attn.{part}_proj", f"self_attn.linear_{part}") for part in "qkv")
    y = model.attend(q, k_, v, d, d if c.get("use_mem_rope") else 0, (d / 2) ** -0.5)
    h, m = model.norm(model.linear(y, p + "self_attn.o_proj"), p + "pre_ff_layernorm"), "feed_forward."
    if two:
        gate, up = np.split(adapted(h, m + "gate_up_proj", m + "gate_up_proj"), 2, axis=1)
    else:
        gate, up = model.linear(h, p + m + "gate_proj"), model.linear(h, p + m + "up_proj")
    return model.linear(gelu_erf(gate) * up, p + m + "down_proj")


def heads_of_mamba1(model: Any, rows: F64, p: str) -> F64:
    """From the projected rows, x and z of each channel in turn, to the input of the output projection."""
    x, z = rows[:, ::2], rows[:, 1::2]
    x = convolved(model, x, p)
    out, A_log = np.empty(x.shape), model.t[p + "A_log"]
    n_head, width, n = A_log.shape
    for h in range(n_head):
        mine = slice(h * width, (h + 1) * width)
        dt, B, C = np.split(x[:, mine] @ model.t[p + "x_proj_weight"][h].T, [-2 * n, -n], axis=1)
        dt, A = dt @ model.t[p + "dt_proj_weight"][h].T, -np.exp(A_log[h])
        bias, D = (model.t[p + name][h] for name in ("dt_proj_bias", "D"))
        out[:, mine], _ = mamba1_scan(x[:, mine], dt, bias, A, D, B, C, z[:, mine], np.zeros((width, n)))
    return out
