"""Granite with windows."""

from typing import Any

import numpy as np
from family_rows import FamilyRows
from reference.attention import attention, rope
from reference.experts import mixture, softmax
from reference.recurrent import F64, silu

from hybrid.quant.ggml.errors import CheckpointError, UnsupportedError

NAME, EXPERTS = "GraniteSWAForCausalLM", "GraniteMoeSWAForCausalLM"


def granite_swa(r: Any, ids: list[int]) -> F64:
    """f64 [tok, vocabulary]"""
    c, pos, n_layer = r.c, np.arange(len(ids)), r.c["num_hidden_layers"]
    d, share = c["hidden_size"] // c["num_attention_heads"], c["residual_multiplier"]
    kinds = c.get("layer_types") or ["sliding_attention" if i % 4 else "full_attention" for i in range(n_layer)]
    thetas = c.get("layer_rope_theta") or [r.theta] * n_layer
    x = r.t["model.embed_tokens.weight"][ids] * c["embedding_multiplier"]
    for i, (kind, theta) in enumerate(zip(kinds, thetas, strict=True)):
        p, a = f"model.layers.{i}.", f"model.layers.{i}.self_attn."
        h = r.norm(x, p + "input_layernorm")
        q, k, v = (r.linear(h, f"{a}{part}_proj").reshape(len(h), -1, d) for part in "qkv")
        if theta:
            q, k = (rope(part, pos, d, theta, neox=True) for part in (q, k))
        window = c["sliding_window"] if kind == "sliding_attention" else 0
        y = attention(q, k, v, pos, c["attention_multiplier"], window, sinks=r.t[a + "sinks"])
        x = x + share * r.linear(y.reshape(len(h), -1), a + "o_proj")
        x = x + share * feed_forward(r, r.norm(x, p + "post_attention_layernorm"), p)
    return r.head(r.norm(x, "model.norm"), "model.embed_tokens.weight") / c["logits_scaling"]


def feed_forward(r: Any, h: F64, p: str) -> F64:
    """The second part of a layer."""
    moe, shared = p + "block_sparse_moe.", p + "shared_mlp."
    if moe + "router.weight" not in r.t:
        return r.gated(h, p + "mlp.")

    def both(one: F64, inner: F64, outer: F64) -> F64:
        gate, up = np.split(one @ inner.T, 2, axis=1)
        return silu(gate) * up @ outer.T

    def expert(one: F64, e: int) -> F64:
        return both(one, r.t[moe + "experts.gate_up_proj"][e], r.t[moe + "experts.down_proj"][e])

    y = mixture(h, softmax(r.linear(h, moe + "router")), 0.0, r.c["num_experts_per_tok"], expert)
    if shared + "input_linear.weight" in r.t:
        y = y + both(h, r.t[shared + "input_linear.weight"], r.t[shared + "output_linear.weight"])
    return y


_SIZES: dict[str, Any] = {
    "architectures": [NAME], "hidden_size": 96, "intermediate_size": 160, "sliding_window": 11,
    "embedding_multiplier": 3.0, "attention_multiplier": 0.2, "residual_multiplier": 0.4, "logits_scaling": 2.0,
}  # fmt: skip
ROWS = FamilyRows(
    configs={
        "granite-swa": {
            **_SIZES, "num_hidden_layers": 5, "num_attention_heads": 6, "num_key_value_heads": 2, "rope_theta": 3e4,
            "tie_word_embeddings": False,
        },
        "granite-swa-order": {
            **_SIZES, "num_hidden_layers": 3, "num_attention_heads": 3, "num_key_value_heads": 1, "rms_norm_eps": 1e-6,
            "layer_types": ["sliding_attention", "full_attention", "full_attention"],
            "layer_rope_theta": [2e5, 0, 2e5],
        },
        "granitemoe-swa": {
            **_SIZES, "architectures": [EXPERTS], "num_hidden_layers": 3, "num_attention_heads": 6,
            "num_key_value_heads": 2, "num_local_experts": 7, "num_experts_per_tok": 3, "intermediate_size": 64,
            "shared_intermediate_size": 48, "rms_norm_eps": 1e-6,
        },
        "granitemoe-swa-alone": {
            **_SIZES, "architectures": [EXPERTS], "num_hidden_layers": 2, "num_attention_heads": 3,
            "num_key_value_heads": 1, "num_local_experts": 5, "num_experts_per_tok": 2, "intermediate_size": 32,
            "rms_norm_eps": 1e-5, "tie_word_embeddings": True,
        },
    },
    repeated=("granite-swa-order", "granitemoe-swa-alone"),
    twins={NAME: granite_swa, EXPERTS: granite_swa},
    defaults={NAME: {"rms_norm_eps": 1e-5}},
    model_types={NAME: "granite_swa", EXPERTS: "granitemoe_swa"},
    converted={"granite-swa": {"model_type": "granite_swa"}, "granitemoe-swa": {"model_type": "granitemoe_swa"}},
    errors=(
        ("granite-swa", {"layer_rope_theta": [1e4, 2e4, 0, 0, 0]}, UnsupportedError, "2 numbers besides 0"),
        ("granite-swa", {"layer_rope_theta": [1e4]}, CheckpointError, "5 numbers, 0 for a layer without RoPE"),
        ("granite-swa", {"sliding_window": None}, CheckpointError, "no sliding_attention"),
    ),
)  # fmt: skip
