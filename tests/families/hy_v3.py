"""Hy3."""

from typing import Any

from family_rows import FamilyRows
from reference.experts import mixture
from reference.recurrent import F64, sigmoid

from hybrid.quant.ggml.errors import CheckpointError, UnsupportedError

NAME = "HYV3ForCausalLM"
_SIZES: dict[str, Any] = {
    "architectures": [NAME], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 3,
    "num_attention_heads": 6, "num_key_value_heads": 2, "num_experts": 7, "num_experts_per_tok": 3,
    "moe_intermediate_size": 64,
}  # fmt: skip


def hy_v3(model: Any, ids: list[int]) -> F64:
    """Logits [tok, vocabulary]."""
    c, x = model.c, model.t["model.embed_tokens.weight"][ids]
    for i in range(c["num_hidden_layers"]):
        p, a, m = (f"model.layers.{i}.{part}" for part in ("", "self_attn.", "mlp."))
        h, d = model.norm(x, p + "input_layernorm"), c["head_dim"]
        q, k, v = (model.linear(h, f"{a}{part}_proj").reshape(len(h), -1, d) for part in "qkv")
        heads = model.attend(model.norm(q, a + "q_norm"), model.norm(k, a + "k_norm"), v, d, d)
        x = x + model.linear(heads, a + "o_proj")
        h = model.norm(x, p + "post_attention_layernorm")
        x = x + (_experts(model, h, m) if m + "expert_bias" in model.t else model.gated(h, m))
    return model.head(model.norm(x, "model.norm"), "model.embed_tokens.weight")


def _experts(model: Any, x: F64, m: str) -> F64:
    def expert(one: F64, e: int) -> F64:
        return model.gated(one, f"{m}experts.{e}.")

    scores, bias = sigmoid(model.linear(x, m + "router.gate")), model.t[m + "expert_bias"]
    y = mixture(x, scores, bias, model.c["num_experts_per_tok"], expert)
    return y * model.c["router_scaling_factor"] + model.gated(x, m + "shared_mlp.")


ROWS = FamilyRows(
    configs={
        "hy-v3": {**_SIZES, "head_dim": 20, "rope_parameters": {"rope_type": "default", "rope_theta": 3e4}},
        "hy-v3-biased": {
            **_SIZES, "head_dim": 24, "attention_bias": True, "num_shared_experts": 2, "router_scaling_factor": 1.3,
            "mlp_layer_types": ["dense", "dense", "sparse"], "rms_norm_eps": 1e-6, "tie_word_embeddings": True,
        },
    },
    repeated=("hy-v3-biased",),
    twins={NAME: hy_v3},
    defaults={NAME: {"rms_norm_eps": 1e-5, "router_scaling_factor": 2.826, "rope_theta": 11158840.0}},
    model_types={NAME: "hy_v3"},
    converted={"hy-v3": {"model_type": "hy_v3"}},
    refused=("hy-v3-biased",),
    sizes={"hy3-295b": 295.0},
    errors=(
        ("hy-v3", {"route_norm": False}, UnsupportedError, "route_norm = false"),
        ("hy-v3", {"qk_norm": False}, UnsupportedError, "qk_norm = false"),
        ("hy-v3", {"expert_hidden_dim": 32}, UnsupportedError, "expert_hidden_dim = 32 is not supported, only 64 is"),
        ("hy-v3", {"mlp_bias": True}, UnsupportedError, "mlp_bias = true"),
        ("hy-v3", {"num_experts_per_tok": 8}, CheckpointError, "num_experts_per_tok = 8"),
        ("hy-v3", {"mlp_layer_types": ["sparse", "dense", "sparse"]}, CheckpointError, "layers without experts"),
    ),
    notes=(("hy-v3", {"attention_bias": True}, "no bias in this architecture"),),
)  # fmt: skip
