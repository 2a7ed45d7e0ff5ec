"""Laguna."""

from functools import partial
from typing import Any

from family_rows import FamilyRows
from reference.plain import Switches, plain

from hybrid.quant.ggml.errors import CheckpointError, UnsupportedError

NAME = "LagunaForCausalLM"
_SIZES: dict[str, Any] = {
    "architectures": [NAME], "hidden_size": 96, "intermediate_size": 160, "num_key_value_heads": 2, "num_experts": 7,
    "num_experts_per_tok": 3, "moe_intermediate_size": 64, "shared_expert_intermediate_size": 48,
}  # fmt: skip
_FULL = {"rope_type": "default", "rope_theta": 500000.0, "partial_rotary_factor": 0.5}
_LOCAL = {"rope_type": "default", "rope_theta": 10000.0}
ROWS = FamilyRows(
    configs={
        "laguna": {
            **_SIZES, "num_hidden_layers": 5, "num_attention_heads": 6, "head_dim": 28, "sliding_window": 11,
            "num_attention_heads_per_layer": [4, 6, 6, 2, 6], "moe_routed_scaling_factor": 2.5,
            "layer_types": ["full_attention", *["sliding_attention"] * 3, "full_attention"],
            "rope_parameters": {
                "full_attention": {
                    "rope_type": "yarn", "rope_theta": 5e5, "factor": 4.0, "original_max_position_embeddings": 64,
                    "partial_rotary_factor": 0.5,
                },
                "sliding_attention": {"rope_type": "default", "rope_theta": 3e4, "partial_rotary_factor": 0.86},
            },
        },
        "laguna-values": {
            **_SIZES, "num_hidden_layers": 3, "num_attention_heads": 4, "head_dim": 20, "gating": "per-element",
            "mlp_layer_types": ["dense", "dense", "sparse"], "rms_norm_eps": 1e-5, "tie_word_embeddings": True,
            "attention_bias": True,
        },
    },
    twins={NAME: partial(plain, s=Switches(normed="heads", apart=True, shared="shared_expert"))},
    defaults={
        NAME: {
            "rms_norm_eps": 1e-6, "head_dim": 128, "norm_topk_prob": True,
            "rope_parameters": {"full_attention": _FULL, "sliding_attention": _LOCAL},
        }
    },
    model_types={NAME: "laguna"},
    converted={"laguna": {"model_type": "laguna"}},
    refused=("laguna-values",),
    loaded=("laguna",),
    errors=(
        ("laguna", {"gating": False}, UnsupportedError, "gating = false is not supported"),
        ("laguna", {"moe_router_logit_softcapping": 30.0}, UnsupportedError, "moe_router_logit_softcapping = 30.0"),
        ("laguna", {"moe_apply_router_weight_on_input": True}, UnsupportedError, "moe_apply_router_weight_on_input"),
        ("laguna", {"num_attention_heads_per_layer": [4, 6, 6, 3, 6]}, CheckpointError, "5 numbers of heads, mult"),
        ("laguna", {"mlp_layer_types": ["sparse"] * 4 + ["dense"]}, CheckpointError, "layers without experts before"),
    ),
)  # fmt: skip
