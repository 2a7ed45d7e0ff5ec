"""Qwen3-Next and Qwen3.5 in float64; `model` is families.Reference."""

from typing import Any

import numpy as np
from reference.experts import mixture, softmax
from reference.recurrent import F64, conv1d, delta_rule, gated_norm, l2_norm, sigmoid, silu

_SIZES = ("num_key_heads", "num_value_heads", "key_head_dim", "value_head_dim")


def qwen3_next(model: Any, ids: list[int]) -> F64:
    c, x = model.c, model.t["model.embed_tokens.weight"][ids]
    d = c["head_dim"]
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        h = model.norm(x, p + "input_layernorm", 1.0)
        if p + "self_attn.q_proj.weight" in model.t:
            q, k, v = (model.linear(h, f"{p}self_attn.{part}_proj").reshape(len(h), -1, d) for part in "qkv")
            q, gate = q[:, ::2], q[:, 1::2]
            q, k = model.norm(q, p + "self_attn.q_norm", 1.0), model.norm(k, p + "self_attn.k_norm", 1.0)
            n_rot = int(d * (model.part if model.part != 1.0 else 0.25))
            y = model.attend(q, k, v, d, n_rot) * sigmoid(gate.reshape(len(h), -1))
            x = x + model.linear(y, p + "self_attn.o_proj")
        else:
            x = x + delta_net(model, h, p + "linear_attn.")
        h, m = model.norm(x, p + "post_attention_layernorm", 1.0), p + "mlp."
        if m + "gate.weight" not in model.t:
            x = x + model.gated(h, m)
            continue
        y = mixture(
            h,
            softmax(model.linear(h, m + "gate")),
            0.0,
            c["num_experts_per_tok"],
            lambda one, e, m=m: model.gated(one, f"{m}experts.{e}."),
            c.get("norm_topk_prob", True),
        )
        x = x + y + sigmoid(model.linear(h, m + "shared_expert_gate")) * model.gated(h, m + "shared_expert.")
    return model.head(model.norm(x, "model.norm", 1.0), "model.embed_tokens.weight")


def delta_net(model: Any, h: F64, p: str, act: str = "silu", plus: float = 0.0, eps: float | None = None) -> F64:
    """act: of the gate; plus: added to the norm's weight; eps: of the norm, None: as of others."""
    c, n_tok = model.c, len(h)
    n_k, n_v, d_k, d_v = (c[f"linear_{name}"] for name in _SIZES)
    share = n_v // n_k
    if p + "in_proj_qkv.weight" in model.t:
        mixed, z = model.linear(h, p + "in_proj_qkv"), model.linear(h, p + "in_proj_z")
        b, a = model.linear(h, p + "in_proj_b"), model.linear(h, p + "in_proj_a")
    else:
        pieces = sorted((k for k in model.t if k.startswith(p + "in_proj_qkvz")), key=_number)
        rows = (h @ np.concatenate([model.t[k] for k in pieces]).T).reshape(n_tok, n_k, -1)
        q, k, v, z = np.split(rows, [d_k, 2 * d_k, 2 * d_k + share * d_v], axis=2)
        mixed = np.concatenate([part.reshape(n_tok, -1) for part in (q, k, v)], axis=1)
        # random checkpoints hold it in the parts into which the converter splits it
        pieces = (
            [p + "in_proj_ba.weight"]
            if p + "in_proj_ba.weight" in model.t
            else [f"{p}in_proj_ba.weight.{i}" for i in range(2 * n_k)]
        )
        both = h @ np.concatenate([model.t[k] for k in pieces]).T
        b, a = np.split(both.reshape(n_tok, n_k, -1), 2, axis=2)
    taps = model.t[p + "conv1d.weight"][:, 0].T
    mixed, _ = conv1d(mixed, taps, np.float64(0), np.zeros((len(taps) - 1, mixed.shape[1])))
    q, k, v = np.split(silu(mixed), [n_k * d_k, 2 * n_k * d_k], axis=1)
    q, k = (np.repeat(l2_norm(part.reshape(n_tok, n_k, d_k), 1e-6), share, axis=1) for part in (q, k))
    steps = np.logaddexp(0.0, a.reshape(n_tok, n_v) + model.t[p + "dt_bias"])
    gate = np.exp(-np.exp(model.t[p + "A_log"]) * steps)[:, :, None]
    v, state = v.reshape(n_tok, n_v, d_v), np.zeros((n_v, d_k, d_v))
    y, _ = delta_rule(q * d_k**-0.5, k, v, gate, sigmoid(b.reshape(n_tok, n_v)), state)
    weight = model.t[p + "norm.weight"] + plus
    y = gated_norm(y, z.reshape(n_tok, n_v, d_v), weight, eps or model.eps, norm_first=True, act=act)
    return model.linear(y.reshape(n_tok, -1), p + "out_proj")


def _number(name: str) -> int:
    last = name.rpartition(".")[2]
    return int(last) if last.isdecimal() else 0
