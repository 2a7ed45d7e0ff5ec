"""GLM-4.7-Flash."""

from typing import Any

from family_rows import FamilyRows
from reference.deepseek import deepseek

from hybrid.quant.ggml.errors import CheckpointError, UnsupportedError

NAME = "Glm4MoeLiteForCausalLM"
_SIZES: dict[str, Any] = {
    "architectures": [NAME], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 3,
    "num_attention_heads": 5, "num_key_value_heads": 5, "kv_lora_rank": 36, "qk_nope_head_dim": 20,
    "qk_rope_head_dim": 12, "v_head_dim": 28, "n_routed_experts": 12, "num_experts_per_tok": 3,
    "moe_intermediate_size": 64, "rope_theta": 2e4,
}  # fmt: skip
ROWS = FamilyRows(
    configs={
        "glm4-moe-lite": {**_SIZES, "q_lora_rank": 40},
        "glm4-moe-lite-groups": {
            **_SIZES, "q_lora_rank": 33, "mlp_layer_types": ["dense", "dense", "sparse"], "n_group": 4, "topk_group": 2,
            "norm_topk_prob": False, "n_shared_experts": 2, "routed_scaling_factor": 1.3, "rms_norm_eps": 1e-6,
            "tie_word_embeddings": True,
        },
    },
    repeated=("glm4-moe-lite-groups",),
    twins={NAME: deepseek},
    defaults={NAME: {"rms_norm_eps": 1e-5, "routed_scaling_factor": 1.8, "n_group": 1, "topk_group": 1}},
    model_types={NAME: "glm4_moe_lite"},
    errors=(
        ("glm4-moe-lite", {"rope_interleave": False}, UnsupportedError, "rope_interleave = false"),
        ("glm4-moe-lite", {"mlp_layer_types": ["sparse", "dense", "sparse"]}, CheckpointError, "layers without exp"),
        ("glm4-moe-lite", {"topk_method": "greedy"}, UnsupportedError, 'topk_method = "greedy"'),
        ("glm4-moe-lite", {"n_group": 5, "topk_group": 2}, CheckpointError, "n_group = 5"),
    ),
    notes=(("glm4-moe-lite", {"q_lora_rank": None}, "with 3 layers queries have latent vectors there"),),
)  # fmt: skip
