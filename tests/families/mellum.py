"""Mellum 2."""

from functools import partial
from typing import Any

from family_rows import FamilyRows
from reference.plain import Switches, plain

from hybrid.quant.ggml.errors import CheckpointError, UnsupportedError

NAME = "MellumForCausalLM"
_ROPES: dict[str, Any] = {
    "full_attention": {"rope_type": "default", "rope_theta": 500000.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
}
_SIZES: dict[str, Any] = {
    "architectures": [NAME], "hidden_size": 96, "intermediate_size": 160, "num_attention_heads": 6,
    "num_key_value_heads": 2, "num_experts": 7, "num_experts_per_tok": 3, "moe_intermediate_size": 64,
}  # fmt: skip
ROWS = FamilyRows(
    configs={
        "mellum": {
            **_SIZES, "num_hidden_layers": 4, "head_dim": 20, "sliding_window": 11,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "sliding_attention"],
            "rope_parameters": {
                "full_attention": {
                    "rope_type": "yarn", "rope_theta": 5e5, "factor": 4.0, "original_max_position_embeddings": 64,
                },
                "sliding_attention": {"rope_type": "default", "rope_theta": 5e5},
            },
        },
        "mellum-order": {
            **_SIZES, "num_hidden_layers": 3, "head_dim": 28, "sliding_window": 9, "rms_norm_eps": 1e-5,
            "layer_types": ["full_attention", "sliding_attention", "full_attention"], "norm_topk_prob": False,
            "mlp_layer_types": ["sparse", "dense", "sparse"], "attention_bias": True, "tie_word_embeddings": True,
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "rope_theta": 2e5, "factor": 3.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 3e4},
            },
        },
        "mellum-full": {**_SIZES, "num_hidden_layers": 2},
    },
    repeated=("mellum-order", "mellum-full"),
    twins={NAME: partial(plain, s=Switches(normed="heads", apart=True))},
    defaults={NAME: {"rms_norm_eps": 1e-6, "head_dim": 128, "norm_topk_prob": True, "rope_parameters": _ROPES}},
    model_types={NAME: "mellum"},
    converted={"mellum": {"model_type": "mellum"}},
    refused=("mellum-order",),
    errors=(
        ("mellum", {"rope_parameters": {"rope_theta": 1e4}}, CheckpointError, "an object full_attention in it"),
        ("mellum", {"sliding_window": None}, CheckpointError, "layer_types = .*expected no sliding_attention"),
        ("mellum", {"mlp_layer_types": ["dense"]}, CheckpointError, "mlp_layer_types = .*expected 4 times dense"),
        (
            "mellum", {"rope_parameters": {**_ROPES, "full_attention": {"partial_rotary_factor": 0.5}}},
            UnsupportedError, "partial_rotary_factor = 0.5 is not supported",
        ),
        ("mellum", {"hidden_act": "gelu"}, UnsupportedError, "hidden_act"),
    ),
    notes=(("mellum", {"norm_topk_prob": False}, "llama.cpp takes norm_topk_prob = true"),),
)  # fmt: skip
