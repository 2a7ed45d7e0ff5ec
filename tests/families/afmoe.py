"""AFMoE (Trinity)."""

from typing import Any

from family_rows import FamilyRows
from reference.plain import Switches, plain
from reference.recurrent import F64

from hybrid.quant.ggml.errors import CheckpointError, UnsupportedError

NAME = "AfmoeForCausalLM"
_SWITCHES = Switches(
    ("input_layernorm", "pre_mlp_layernorm"), ("post_attention_layernorm", "post_mlp_layernorm"), "heads", period=4,
    nope=True,
)  # fmt: skip


def afmoe(model: Any, ids: list[int]) -> F64:
    """Logits [tok, vocabulary]; `model` is families.Reference."""
    c, embedding = model.c, model.t["model.embed_tokens.weight"]
    model.c = {**c, "routed_scaling_factor": c["route_scale"], "norm_topk_prob": True}
    model.t = {name.replace(".mlp.router.gate.", ".mlp.gate."): x for name, x in model.t.items()}
    model.t = {name.replace(".mlp.expert_bias", ".mlp.gate.e_score_correction_bias"): x for name, x in model.t.items()}
    if c.get("mup_enabled"):
        model.t.setdefault("lm_head.weight", embedding)
        model.t["model.embed_tokens.weight"] = embedding * c["hidden_size"] ** 0.5
    return plain(model, ids, _SWITCHES)


_SIZES: dict[str, Any] = {
    "architectures": [NAME], "hidden_size": 96, "intermediate_size": 136, "num_attention_heads": 6,
    "num_key_value_heads": 2, "head_dim": 20, "num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 40,
}  # fmt: skip
ROWS = FamilyRows(
    configs={
        "afmoe": {
            **_SIZES, "num_hidden_layers": 4, "sliding_window": 11, "rope_theta": 2e4, "mup_enabled": True,
            "route_scale": 2.826,
        },
        "afmoe-order": {
            **_SIZES, "num_hidden_layers": 3, "sliding_window": 9, "num_shared_experts": 1, "num_dense_layers": 2,
            "layer_types": ["full_attention", "sliding_attention", "full_attention"], "attention_bias": True,
            "rms_norm_eps": 1e-4, "tie_word_embeddings": True,
        },
    },
    repeated=("afmoe-order",),
    twins={NAME: afmoe},
    defaults={NAME: {"rms_norm_eps": 1e-5, "sliding_window": 1024, "route_scale": 1.0}},
    model_types={NAME: "afmoe"},
    converted={"afmoe": {
        "model_type": "afmoe", "route_norm": True, "score_func": "sigmoid", "num_shared_experts": 2,
        "num_dense_layers": 1,
    }},
    refused=("afmoe-order",),
    errors=(
        ("afmoe", {"score_func": "softmax"}, UnsupportedError, 'score_func = "softmax"'),
        ("afmoe", {"route_norm": False}, UnsupportedError, "route_norm = false"),
        ("afmoe", {"n_group": 2}, UnsupportedError, "n_group = 2"),
        ("afmoe", {"sliding_window": None}, CheckpointError, "no sliding_attention"),
    ),
    notes=(
        ("afmoe", {"mup_enabled": False}, "multiplies the embedding"),
        ("afmoe", {"global_attn_every_n_layers": 2}, "to have no positions"),
    ),
)  # fmt: skip
