"""Hy3."""

from typing import Any

from family_rows import FamilyRows
from reference.plain import plain
from reference.recurrent import F64

from hybrid.quant.ggml.errors import CheckpointError, UnsupportedError

NAME = "HYV3ForCausalLM"
SHARED = "shared_experts."


def hy_v3(model: Any, ids: list[int]) -> F64:
    """Logits [tok, vocabulary]; `model` is families.Reference."""
    model.c = {**model.c, "routed_scaling_factor": model.c["router_scaling_factor"], "norm_topk_prob": True}
    others = (("router.gate.", "gate."), ("expert_bias", "gate.e_score_correction_bias"), ("shared_mlp.", SHARED))
    for ours, plains in others:
        model.t = {name.replace(f".mlp.{ours}", f".mlp.{plains}"): x for name, x in model.t.items()}
    return plain(model, ids)


_SIZES: dict[str, Any] = {
    "architectures": [NAME], "hidden_size": 96, "intermediate_size": 136, "num_hidden_layers": 3,
    "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 20, "num_experts": 7, "num_experts_per_tok": 3,
    "moe_intermediate_size": 40,
}  # fmt: skip
ROWS = FamilyRows(
    configs={
        "hy-v3": _SIZES,
        "hy-v3-yarn": {
            **_SIZES, "mlp_layer_types": ["dense", "dense", "sparse"], "num_shared_experts": 2,
            "router_scaling_factor": 1.3, "rms_norm_eps": 1e-4, "tie_word_embeddings": True, "attention_bias": True,
            "rope_parameters": {
                "rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 128,
            },
        },
    },
    repeated=("hy-v3-yarn",),
    twins={NAME: hy_v3},
    defaults={NAME: {"rms_norm_eps": 1e-5, "router_scaling_factor": 2.826}},
    model_types={NAME: "hy_v3"},
    converted={"hy-v3": {"model_type": "hy_v3", "router_scaling_factor": 2.826}},
    refused=("hy-v3-yarn",),
    errors=(
        ("hy-v3", {"mlp_bias": True}, UnsupportedError, "mlp_bias = true"),
        ("hy-v3", {"route_norm": False}, UnsupportedError, "route_norm = false"),
        ("hy-v3", {"mlp_layer_types": ["sparse", "dense", "sparse"]}, CheckpointError, "layers without experts"),
    ),
    notes=(("hy-v3-yarn", {}, "there what attention returns has no bias"),),
)  # fmt: skip
