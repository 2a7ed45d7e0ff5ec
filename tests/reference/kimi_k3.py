"""Kimi K3 in float64, after its published modeling code; `model` is families.Reference."""

from typing import Any

import numpy as np
from reference.attention import attention
from reference.experts import mixture, softmax
from reference.kimi import LATENT_EPS, convolved, rms, up_projection
from reference.recurrent import F64, delta_rule, gated_norm, l2_norm, sigmoid, softplus


def kimi_k3(model: Any, ids: list[int]) -> F64:
    """Logits [tok, vocabulary]."""
    c, stream = model.c, model.t["model.embed_tokens.weight"][ids]
    banks: list[F64] = []
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        h = mixed(model, [stream, *banks], p + "self_attention_res")
        begins = i % c["attn_res_block_size"] == 0
        if begins:
            banks.append(stream)
        latent = i + 1 in c["linear_attn_config"]["full_attn_layers"]
        y = (attend if latent else kda)(model, model.norm(h, p + "input_layernorm"), p + "self_attn.")
        stream = y if begins else stream + y
        h = mixed(model, [stream, *banks], p + "mlp_res")
        stream = stream + feed_forward(model, model.norm(h, p + "post_attention_layernorm"), p)
    h = mixed(model, [stream, *banks], "model.output_attn_res")
    return model.head(model.norm(h, "model.norm"), "model.embed_tokens.weight")


def mixed(model: Any, rows: list[F64], name: str) -> F64:
    """Rows [tok, n], added with softmax weights from their normalized values; a single row is unchanged."""
    query = (model.t[name + "_norm.weight"] * model.t[name + "_proj.weight"]).reshape(-1)
    scores = np.stack([rms(row, query, model.eps).sum(1) for row in rows], axis=1)
    return (softmax(scores)[:, :, None] * np.stack(rows, axis=1)).sum(1)


def situ(gate: F64, up: F64, beta: float, linear_beta: float | None) -> F64:
    bent = linear_beta * np.tanh(up / linear_beta) if linear_beta else up
    return beta * np.tanh(gate / beta) * sigmoid(gate) * bent


def kda(model: Any, x: F64, p: str) -> F64:
    linear = model.c["linear_attn_config"]
    shape = (len(x), linear["num_heads"], linear["head_dim"])
    q, k, v = (
        convolved(model, model.linear(x, f"{p}{part}_proj"), f"{p}{part}_conv1d").reshape(shape) for part in "qkv"
    )
    q, k = l2_norm(q, 1e-6) / np.sqrt(shape[2]), l2_norm(k, 1e-6)
    f = model.linear(model.linear(x, p + "f_a_proj"), p + "f_b_proj") + model.t[p + "dt_bias"]
    f, rate = f.reshape(shape), np.exp(model.t[p + "A_log"].reshape(-1, 1))
    lowest = linear.get("gate_lower_bound")
    decay = np.exp(-rate * softplus(f) if lowest is None else lowest * sigmoid(rate * f))
    y, _ = delta_rule(q, k, v, decay, sigmoid(model.linear(x, p + "b_proj")), np.zeros((shape[1], shape[2], shape[2])))
    gate = model.linear(x, p + "g_proj").reshape(shape)
    y = gated_norm(y, gate, model.t[p + "o_norm.weight"], model.eps, norm_first=True, act="sigmoid")
    return model.linear(y.reshape(len(x), -1), p + "o_proj")


def attend(model: Any, x: F64, p: str) -> F64:
    c, n, n_head = model.c, len(x), model.c["num_attention_heads"]
    rank, d_nope, d_value = c["kv_lora_rank"], c["qk_nope_head_dim"], c["v_head_dim"]
    low = x
    if c.get("q_lora_rank"):
        low = rms(model.linear(x, p + "q_a_proj"), model.t[p + "q_a_layernorm.weight"], LATENT_EPS)
    q = model.linear(low, p + ("q_b_proj" if c.get("q_lora_rank") else "q_proj")).reshape(n, n_head, -1)
    both = model.linear(x, p + "kv_a_proj_with_mqa")
    latent = rms(both[:, :rank], model.t[p + "kv_a_layernorm.weight"], LATENT_EPS)
    made = (latent @ up_projection(model, p, n_head).T).reshape(n, n_head, d_nope + d_value)
    k = np.concatenate([made[:, :, :d_nope], np.repeat(both[:, None, rank:], n_head, axis=1)], axis=2)
    y = attention(q, k, made[:, :, d_nope:], np.arange(n), q.shape[2] ** -0.5).reshape(n, -1)
    if c.get("mla_use_output_gate"):
        y = y * sigmoid(model.linear(x, p + "g_proj"))
    return model.linear(y, p + "o_proj")


def feed_forward(model: Any, x: F64, p: str) -> F64:
    c, m = model.c, p + "block_sparse_moe."
    betas = c.get("activation_situ_beta") or 1.0, c.get("activation_situ_linear_beta")

    def gated(rows: F64, name: str, gate: str = "gate_proj", up: str = "up_proj", down: str = "down_proj") -> F64:
        return model.linear(situ(model.linear(rows, name + gate), model.linear(rows, name + up), *betas), name + down)

    if m + "gate.weight" not in model.t:
        return gated(x, p + "mlp.")
    narrow = bool(c.get("routed_expert_hidden_size"))
    rows = model.linear(x, m + "routed_expert_down_proj") if narrow else x
    scores, groups = sigmoid(model.linear(x, m + "gate")), (c.get("num_expert_group", 1), c.get("topk_group", 1))
    y = mixture(
        rows,
        scores,
        model.t[m + "gate.e_score_correction_bias"],
        c["num_experts_per_token"],
        lambda one, e: gated(one, f"{m}experts.{e}.", "w1", "w3", "w2"),
        c.get("moe_renormalize", True),
        groups,
    ) * c.get("routed_scaling_factor", 1.0)
    if c.get("latent_moe_use_norm"):
        y = model.norm(y, m + "routed_expert_norm")
    if narrow:
        y = model.linear(y, m + "routed_expert_up_proj")
    return y + gated(x, m + "shared_experts.") if c.get("num_shared_experts") else y
