"""GigaChat 3.5 in float64, by the code of its authors for vLLM and SGLang; `model` is families.Reference. Keys and
values of latent attention (arXiv:2405.04434) are computed from the latent vectors, as in the paper's first
formulation."""

from typing import Any

import numpy as np
from reference.attention import attention
from reference.deepseek import turns
from reference.glm5_next import feed_forward
from reference.kimi import turned, up_projection
from reference.qwen3_next import delta_net
from reference.recurrent import F64, sigmoid, silu

DEFAULTS = {
    "n_group": 1, "topk_group": 1, "norm_topk_prob": True, "routed_scaling_factor": 2.5, "swiglu_limit": 10.0,
    "rms_norm_eps": 1e-6, "rope_theta": 1e4,
}  # fmt: skip


def gigachat35(model: Any, ids: list[int]) -> F64:
    """Logits [tok, vocabulary]."""
    return model.head(norm(model, stream(model, ids), "model.norm"), "model.embed_tokens.weight")


def stream(model: Any, ids: list[int]) -> F64:
    """The residual stream after the last layer, [tok, n]."""
    x = model.t["model.embed_tokens.weight"][ids]
    for i in range(model.c["num_hidden_layers"]):
        x = layer(model, x, f"model.layers.{i}.")
    return x


def layer(model: Any, x: F64, p: str) -> F64:
    mixer = latent_attention if p + "self_attn.kv_a_proj_with_mqa.weight" in model.t else delta
    y = mixer(model, norm(model, x, p + "input_layernorm"), p + "self_attn.")
    x = x + norm(model, y, p + "post_self_attn_layernorm")
    y = feed_forward(model, norm(model, x, p + "post_attention_layernorm"), p + "mlp.")
    return x + norm(model, y, p + "post_feedforward_layernorm")


def norm(model: Any, x: F64, name: str) -> F64:
    """A norm, whose result is multiplied by twice a sigmoid of what a bottleneck makes of it."""
    y = model.norm(x, name, 1.0)
    gate = model.linear(silu(model.linear(y, name + ".gate_up_projection")), name + ".gate_down_projection")
    return y * 2 * sigmoid(gate)


def latent_attention(model: Any, x: F64, p: str) -> F64:
    c, n, n_head = model.c, len(x), model.c["num_attention_heads"]
    rank, d_nope, d_shared = (c[name] for name in ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim"))
    if p + "q_a_proj.weight" in model.t:
        low = norm(model, model.linear(x, p + "q_a_proj"), p + "q_a_layernorm")
        q = model.linear(low * np.sqrt(c["hidden_size"] / c["q_lora_rank"]), p + "q_b_proj")
    else:
        q = model.linear(x, p + "q_proj")
    both = model.linear(x, p + "kv_a_proj_with_mqa")
    latent = norm(model, both[:, :rank], p + "kv_a_layernorm") * np.sqrt(c["hidden_size"] / rank)
    made = (latent @ up_projection(model, p, n_head).T).reshape(n, n_head, -1)
    frequencies, growth = turns(c)
    q, shared = q.reshape(n, n_head, -1), turned(both[:, None, rank:], frequencies)
    q[:, :, d_nope:] = turned(q[:, :, d_nope:], frequencies)
    k = np.concatenate([made[:, :, :d_nope], np.repeat(shared, n_head, axis=1)], axis=2)
    y = attention(q, k, made[:, :, d_nope:], np.arange(n), growth * (d_nope + d_shared) ** -0.5).reshape(n, -1)
    return model.linear(y * sigmoid(model.linear(x, p + "gate_proj")), p + "o_proj")


def delta(model: Any, x: F64, p: str) -> F64:
    """Qwen3-Next's layer, whose gate is twice a sigmoid, and whose norm multiplies by 1 + weight."""
    return delta_net(model, x, p, "sigmoid", plus=1.0, eps=model.c.get("linear_attn_o_norm_eps")) * 2
