"""Opt.Gear. Its class is not in transformers: the twin is written from mlx-lm's."""

from typing import Any

import numpy as np
from family_rows import FamilyRows
from reference.attention import attention, rope
from reference.recurrent import F64, conv1d, sigmoid

from hybrid.quant.ggml.errors import CheckpointError, UnsupportedError

NAME = "GearForCausalLM"


def gear(model: Any, ids: list[int]) -> F64:
    """Logits [tok, vocabulary]."""
    c, x = model.c, model.t["model.embed_tokens.weight"][ids] * model.c["hidden_size"] ** 0.5
    for i, kind in enumerate(c["layer_types"]):
        p = f"model.layers.{i}."
        h = model.norm(x, p + "input_layernorm", 1.0)
        y = convolve(model, h, p + "local_mixer.") if kind == "conv_mixer" else attend(model, h, p + "self_attn.", kind)
        x = x + model.norm(y, p + "post_attention_layernorm", 1.0)
        h, m = model.norm(x, p + "pre_feedforward_layernorm", 1.0), p + "mlp."
        y = model.linear(gelu(model.linear(h, m + "gate_proj")) * model.linear(h, m + "up_proj"), m + "down_proj")
        x = x + model.norm(y, p + "post_feedforward_layernorm", 1.0)
    y = model.head(model.norm(x, "model.norm", 1.0), "model.embed_tokens.weight")
    cap = c.get("final_logit_softcapping")
    return cap * np.tanh(y / cap) if cap else y


def gelu(x: F64) -> F64:
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def projected(model: Any, h: F64, p: str) -> tuple[F64, F64, F64]:
    """Queries, keys [tok, head, d], both normalized, and values."""
    q, k, v = (model.linear(h, f"{p}{part}_proj").reshape(len(h), -1, model.c["head_dim"]) for part in "qkv")
    return model.norm(q, p + "q_norm", 1.0), model.norm(k, p + "k_norm", 1.0), v


def attend(model: Any, h: F64, p: str, kind: str) -> F64:
    c, pos, d, local = model.c, np.arange(len(h)), model.c["head_dim"], kind == "sliding_attention"
    q, k, v = projected(model, h, p)
    base = c.get("rope_local_base_freq", 1e4) if local else c.get("rope_theta", 1e6)
    q, k = (rope(part, pos, d, base, neox=True) for part in (q, k))
    scale = (c.get("query_pre_attn_scalar") or d) ** -0.5
    window = c.get("sliding_window", 512) if local else 0
    y = attention(q, k, v, pos, scale, window, c.get("attn_logit_softcapping") or 0.0)
    return model.linear(y.reshape(len(h), -1), p + "o_proj")


def convolve(model: Any, h: F64, p: str) -> F64:
    q, k, v = projected(model, h, p)
    share = q.shape[1] // k.shape[1]
    k, v = (
        np.repeat(convolved(model, part, f"{p}{name}_conv"), share, axis=1) for part, name in ((k, "key"), (v, "value"))
    )
    return model.linear((sigmoid(q * k) * v).reshape(len(h), -1), p + "o_proj")


def convolved(model: Any, x: F64, name: str) -> F64:
    rows, taps = x.reshape(len(x), -1), model.t[name + ".weight"][:, 0].T
    return conv1d(rows, taps, np.float64(0), np.zeros((len(taps) - 1, rows.shape[1])))[0].reshape(x.shape)


_SIZES: dict[str, Any] = {
    "architectures": [NAME], "hidden_size": 96, "intermediate_size": 136, "num_attention_heads": 6,
    "num_key_value_heads": 2, "head_dim": 20, "rms_norm_eps": 1e-6,
}  # fmt: skip
_MIXED = ["conv_mixer", "sliding_attention", "conv_mixer", "full_attention", "conv_mixer"]
ROWS = FamilyRows(
    configs={
        "gear": {
            **_SIZES, "num_hidden_layers": 5, "layer_types": _MIXED, "sliding_window": 11, "conv_L_cache": 4,
            "query_pre_attn_scalar": 30, "rope_theta": 3e4, "rope_local_base_freq": 2e3, "attn_logit_softcapping": 9.0,
            "final_logit_softcapping": 6.0,
        },
        "gear-convolutions": {
            **_SIZES, "num_hidden_layers": 3, "layer_types": ["conv_mixer", "conv_mixer", "full_attention"],
            "num_key_value_heads": 6, "head_dim": 7 * 2,
        },
    },
    twins={NAME: gear},
    published={
        NAME: {
            "vocab_size": 131072, "hidden_size": 1536, "intermediate_size": 6144, "num_hidden_layers": 28,
            "num_attention_heads": 12, "num_key_value_heads": 4, "head_dim": 128, "rms_norm_eps": 1e-6,
            "layer_types": _MIXED, "max_position_embeddings": 32768, "hidden_activation": "gelu_pytorch_tanh",
            "attention_bias": False, "attention_dropout": 0.0, "query_pre_attn_scalar": 128, "sliding_window": 512,
            "conv_L_cache": 3, "rope_theta": 1e6, "rope_local_base_freq": 1e4, "rope_scaling": None,
            "tie_word_embeddings": True, "final_logit_softcapping": None, "attn_logit_softcapping": None,
            "use_bidirectional_attention": False, "initializer_range": 0.02, "use_cache": True,
        },
    },
    errors=(
        ("gear", {"attention_bias": True}, UnsupportedError, "attention_bias = true"),
        ("gear", {"hidden_activation": "silu"}, UnsupportedError, 'hidden_activation = "silu"'),
        ("gear", {"use_bidirectional_attention": True}, UnsupportedError, "use_bidirectional_attention = true"),
        ("gear", {"conv_L_cache": 1}, CheckpointError, "conv_L_cache = 1"),
        ("gear", {"layer_types": ["conv"] * 5}, CheckpointError, "layer_types = .*5 times full_attention or"),
    ),
    refused=("gear", "gear-convolutions"),
    loaded=("gear",),
)  # fmt: skip
