"""Mistral Small 4."""

from typing import Any

import numpy as np
from family_rows import FamilyRows
from reference.deepseek import turns
from reference.experts import mixture, softmax
from reference.kimi import latent_attention
from reference.recurrent import F64, silu

from hybrid.quant.ggml.errors import CheckpointError, UnsupportedError

NAME = "Mistral4ForCausalLM"


def mistral4(r: Any, ids: list[int]) -> F64:
    """f64 [tok, vocabulary]"""
    c, settings = r.c, r.c["rope_parameters"]
    frequencies, growth = turns({**c, "rope_scaling": settings, "rope_theta": settings["rope_theta"]})
    steps = np.floor(np.arange(len(ids)) / settings["original_max_position_embeddings"])
    stretch = 1 + settings["llama_4_scaling_beta"] * np.log(1 + steps)
    x = r.t["model.embed_tokens.weight"][ids]
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        h, m = r.norm(x, p + "input_layernorm"), p + "mlp."
        x = x + latent_attention(r, h, p + "self_attn.", frequencies, growth, stretch)
        h = r.norm(x, p + "post_attention_layernorm")
        if i < c.get("first_k_dense_replace", 0):
            x = x + r.gated(h, m)
            continue

        def expert(one: F64, e: int, m: str = m) -> F64:
            gate, up = np.split(one @ r.t[m + "experts.gate_up_proj"][e].T, 2, axis=1)
            return silu(gate) * up @ r.t[m + "experts.down_proj"][e].T

        scores, groups = softmax(r.linear(h, m + "gate")), (c.get("n_group", 1), c.get("topk_group", 1))
        y = mixture(h, scores, 0.0, c["num_experts_per_tok"], expert, c.get("norm_topk_prob", True), groups)
        x = x + y * c.get("routed_scaling_factor", 1.0) + r.gated(h, m + "shared_experts.")
    return r.head(r.norm(x, "model.norm"), "model.embed_tokens.weight")


_SIZES: dict[str, Any] = {
    "architectures": [NAME], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 3,
    "num_attention_heads": 5, "num_key_value_heads": 5, "kv_lora_rank": 36, "qk_nope_head_dim": 20,
    "qk_rope_head_dim": 12, "v_head_dim": 28, "n_routed_experts": 12, "num_experts_per_tok": 3,
    "moe_intermediate_size": 64, "n_shared_experts": 1,
}  # fmt: skip
_ROPE: dict[str, Any] = {
    "rope_type": "yarn", "rope_theta": 2e4, "factor": 4.0, "original_max_position_embeddings": 16, "mscale": 1.0,
    "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1,
}  # fmt: skip
ROWS = FamilyRows(
    configs={
        "mistral4": {**_SIZES, "q_lora_rank": 40, "rope_parameters": _ROPE},
        "mistral4-groups": {
            **_SIZES, "q_lora_rank": 33, "first_k_dense_replace": 1, "n_group": 4, "topk_group": 2,
            "norm_topk_prob": False, "routed_scaling_factor": 1.3, "n_shared_experts": 2, "rms_norm_eps": 1e-6,
            "tie_word_embeddings": True, "rope_parameters": {
                "rope_type": "yarn", "rope_theta": 1e4, "factor": 2.0, "original_max_position_embeddings": 9,
                "mscale": 0.7, "mscale_all_dim": 0.7, "llama_4_scaling_beta": 0.3, "partial_rotary_factor": 0.375,
            },
        },
    },
    repeated=("mistral4-groups",),
    twins={NAME: mistral4},
    defaults={NAME: {"rms_norm_eps": 1e-6}},
    model_types={NAME: "mistral4"},
    different=("mistral4-groups",),
    errors=(
        ("mistral4", {"rope_interleave": False}, UnsupportedError, "rope_interleave = false"),
        ("mistral4", {"rope_parameters": {**_ROPE, "partial_rotary_factor": 0.5}}, UnsupportedError, "partial_rotary"),
        ("mistral4", {"rope_parameters": {**_ROPE, "llama_4_scaling_beta": -1.0}}, CheckpointError, "llama_4_scaling"),
        ("mistral4", {"rope_parameters": {"rope_theta": 1e4}}, UnsupportedError, "rope_type = 'default' is not"),
        ("mistral4", {"n_group": 5, "topk_group": 2}, CheckpointError, "n_group = 5"),
    ),
    notes=(
        ("mistral4", {"rope_parameters": {**_ROPE, "mscale": 0.7, "mscale_all_dim": 0.7}}, "llama.cpp takes mscale"),
    ),
)  # fmt: skip
