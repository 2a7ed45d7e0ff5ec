"""MiniCPM, MiniCPM3 (arXiv:2404.06395) and MiniCPM-SALA in float64, by their published code; `model` is
families.Reference."""

from typing import Any

import numpy as np
from reference.attention import attention, rope
from reference.kimi import LATENT_EPS, rms
from reference.ling import slopes
from reference.minimax import lightning
from reference.recurrent import F64, sigmoid
from reference.rope_scaling import scaling


def minicpm(model: Any, ids: list[int]) -> F64:
    """Logits [tok, vocabulary]."""
    c, x = model.c, model.t["model.embed_tokens.weight"][ids] * model.c["scale_emb"]
    root = np.sqrt(c["num_hidden_layers"])
    share = (c["scale_depth"] or root) / root
    mixed = latent if "kv_lora_rank" in c else mixer
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        x = x + share * mixed(model, model.norm(x, p + "input_layernorm"), p + "self_attn.", i)
        x = x + share * model.gated(model.norm(x, p + "post_attention_layernorm"), p + "mlp.")
    x = model.norm(x, "model.norm") / (c["hidden_size"] / (c["dim_model_base"] or c["hidden_size"]))
    return model.head(x, "model.embed_tokens.weight")


def mixer(model: Any, x: F64, p: str, i: int) -> F64:
    c, n, n_head = model.c, len(x), model.c["num_attention_heads"]
    is_lightning = c.get("mixer_types", ["minicpm4"] * (i + 1))[i] != "minicpm4"
    d = c.get("head_dim") or c["hidden_size"] // n_head
    q, k, v = (model.linear(x, f"{p}{part}_proj").reshape(n, -1, d) for part in "qkv")
    if is_lightning and c.get("qk_norm", True):
        q, k = model.norm(q, p + "q_norm"), model.norm(k, p + "k_norm")
    if c.get("lightning_use_rope" if is_lightning else "attn_use_rope", True):
        factors, magnitude = scaling(c, d, model.theta, n)
        q, k = (rope(y, np.arange(n), d, model.theta, 1.0, factors, True, magnitude) for y in (q, k))
    if is_lightning:
        scale = d**-1.0 if c.get("lightning_scale") == "1/d" else d**-0.5
        y = lightning(q * scale, k, v, np.exp(-np.array(slopes(n_head)))).reshape(n, -1)
        y = model.norm(y, p + "o_norm") if c.get("use_output_norm") else y
    else:
        y = attention(q, k, v, np.arange(n), d**-0.5).reshape(n, -1)
    if c.get("use_output_gate" if is_lightning else "attn_use_output_gate"):
        y = y * sigmoid(model.linear(x, p + ("z_proj" if is_lightning else "o_gate")))
    return model.linear(y, p + "o_proj")


def latent(model: Any, x: F64, p: str, i: int) -> F64:
    """MiniCPM3's attention: DeepSeek-V2's, with RoPE's pairs half a rotated part apart."""
    c, n, n_head = model.c, len(x), model.c["num_attention_heads"]
    rank, d_nope, d_shared = (c[name] for name in ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim"))
    if c["q_lora_rank"]:
        low = rms(model.linear(x, p + "q_a_proj"), model.t[p + "q_a_layernorm.weight"], LATENT_EPS)
        q = model.linear(low, p + "q_b_proj").reshape(n, n_head, -1)
    else:
        q = model.linear(x, p + "q_proj").reshape(n, n_head, -1)
    both = model.linear(x, p + "kv_a_proj_with_mqa")
    vector = rms(both[:, :rank], model.t[p + "kv_a_layernorm.weight"], LATENT_EPS)
    made = model.linear(vector, p + "kv_b_proj").reshape(n, n_head, -1)
    factors, magnitude = scaling(c, d_shared, model.theta, n)
    turned, shared = (
        rope(part, np.arange(n), d_shared, model.theta, 1.0, factors, True, magnitude)
        for part in (q[:, :, d_nope:], both[:, None, rank:])
    )
    q = np.concatenate([q[:, :, :d_nope], turned], axis=2)
    k = np.concatenate([made[:, :, :d_nope], np.repeat(shared, n_head, axis=1)], axis=2)
    y = attention(q, k, made[:, :, d_nope:], np.arange(n), (d_nope + d_shared) ** -0.5)
    return model.linear(y.reshape(n, -1), p + "o_proj")
