"""LaraMini."""

from typing import Any

import numpy as np
from family_rows import FamilyRows
from reference.attention import attention, rope
from reference.experts import mixture, softmax
from reference.olmo_hybrid import joined
from reference.recurrent import F64, silu
from reference.rope_scaling import scaling

from hybrid.quant.ggml.errors import CheckpointError, UnsupportedError

NAME = "LaraMiniForCausalLM"
_PERIOD = ("linear_attention", "sliding_attention", "linear_attention", "full_attention", "sliding_attention")


def lara_mini(model: Any, ids: list[int]) -> F64:
    """Logits [tok, vocabulary]; `model` is families.Reference."""
    c, x = model.c, model.t["model.embed_tokens.weight"][ids]
    for i in range(c["num_hidden_layers"]):
        p, kind = f"model.layers.{i}.", (c.get("layer_types") or _PERIOD)[i]
        h = model.norm(x, p + "input_layernorm")
        if kind == "linear_attention":
            x = x + _delta_net(model, h, p + "linear_attn.")
        else:
            x = x + _attend(model, h, p + "self_attn.", kind == "sliding_attention")
        x = x + _experts(model, model.norm(x, p + "post_attention_layernorm"), p + "mlp.")
    return model.head(model.norm(x, "model.norm"), "model.embed_tokens.weight")


def _attend(model: Any, h: F64, p: str, local: bool) -> F64:
    c, d, pos = model.c, model.c["head_dim"], np.arange(len(h))
    q, k, v = (model.linear(h, f"{p}{part}_proj").reshape(len(h), -1, d) for part in "qkv")
    q, k = model.norm(q, p + "q_norm"), model.norm(k, p + "k_norm")
    if local:
        factors, magnitude = scaling(c, d, model.theta, len(h))
        q, k = (rope(part, pos, d, model.theta, 1.0, factors, True, magnitude) for part in (q, k))
    y = attention(q, k, v, pos, d**-0.5, c["sliding_window"] if local else 0)
    return model.linear(y.reshape(len(h), -1), p + "o_proj")


def _delta_net(model: Any, h: F64, p: str) -> F64:
    """Splits the fused projection, as transformers does, into the tensors of Qwen3.5."""
    c, t, whole = model.c, model.t, p + "in_proj.weight"
    n_head = c["linear_num_value_heads"]
    n_value = n_head * c["linear_value_head_dim"]
    mixed = 2 * c["linear_num_key_heads"] * c["linear_key_head_dim"] + n_value
    rows = t[whole] if whole in t else joined(t, whole)
    ends = np.cumsum([mixed, n_value, n_head])
    for part, matrix in zip(("qkv", "z", "b", "a"), np.split(rows, ends), strict=True):
        t[f"{p}in_proj_{part}.weight"] = matrix
    t[p + "norm.weight"] = t[p + "out_norm.weight"]
    return model.delta_net(h, p)


def _experts(model: Any, h: F64, p: str) -> F64:
    c, t, whole = model.c, model.t, p + "experts.gate_up_proj"
    both = t[whole] if whole in t else joined(t, whole).reshape(c["num_experts"], -1, h.shape[1])

    def expert(one: F64, e: int) -> F64:
        gate, up = np.split(one @ both[e].T, 2, axis=1)
        return (silu(gate) * up) @ t[p + "experts.down_proj"][e].T

    norm = c.get("norm_topk_prob", True)
    y = mixture(h, softmax(model.linear(h, p + "gate")), 0.0, c["num_experts_per_tok"], expert, norm)
    return y + model.gated(h, p + "shared_expert.")


_SIZES: dict[str, Any] = {
    "architectures": [NAME], "hidden_size": 96, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 20,
    "num_experts": 7, "num_experts_per_tok": 3, "moe_intermediate_size": 40, "shared_expert_intermediate_size": 56,
}  # fmt: skip
ROWS = FamilyRows(
    configs={
        "laramini": {
            **_SIZES, "num_hidden_layers": 4, "sliding_window": 11, "rope_theta": 5e3,
            "layer_types": ["sliding_attention", "linear_attention", "full_attention", "linear_attention"],
            "linear_num_key_heads": 3, "linear_num_value_heads": 6, "linear_key_head_dim": 24,
            "linear_value_head_dim": 16, "linear_conv_kernel_dim": 3, "tie_word_embeddings": False,
        },
        "laramini-biased": {
            **_SIZES, "num_hidden_layers": 5, "sliding_window": 9, "attention_bias": True, "norm_topk_prob": False,
            "rms_norm_eps": 1e-4,
            "linear_num_key_heads": 5, "linear_num_value_heads": 5, "linear_key_head_dim": 12,
            "linear_value_head_dim": 28, "linear_conv_kernel_dim": 4, "tie_word_embeddings": True,
            "rope_parameters": {
                "rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 128,
            },
        },
    },
    repeated=("laramini-biased",),
    twins={NAME: lara_mini},
    defaults={NAME: {"rms_norm_eps": 1e-6}},
    noise={"lara-mini": 4.6e-5},
    model_types={NAME: "lara_mini"},
    errors=(
        ("laramini", {"sliding_window": None}, CheckpointError, "sliding_window = null.*layers of sliding_attention"),
        ("laramini", {"num_key_value_heads": 4}, CheckpointError, "num_key_value_heads = 4.*a divisor of the 6 att"),
        ("laramini", {"linear_num_value_heads": 4}, CheckpointError, "linear_num_value_heads = 4.*multiple of .* = 3"),
        ("laramini", {"head_dim": 21}, CheckpointError, "even size"),
        ("laramini", {"rope_parameters": {"partial_rotary_factor": 0.5}}, UnsupportedError, "partial_rotary_factor"),
        ("laramini", {"hidden_act": "gelu"}, UnsupportedError, 'hidden_act = "gelu"'),
        ("laramini", {"layer_types": ["mamba"] * 4}, CheckpointError, "4 times linear_attention or sliding_attention"),
    ),
    notes=(("laramini", {}, "no such architecture"),),
    refused=("laramini", "laramini-biased", "lara-mini"),
)  # fmt: skip
