"""Solar Open."""

from functools import partial
from typing import Any

from family_rows import FamilyRows
from reference.plain import Switches, plain

from hybrid.quant.ggml.errors import UnsupportedError

NAME = "SolarOpenForCausalLM"
_SIZES: dict[str, Any] = {
    "architectures": [NAME], "hidden_size": 96, "moe_intermediate_size": 64, "num_experts_per_tok": 3,
    "n_routed_experts": 12, "n_shared_experts": 1, "rms_norm_eps": 1e-5, "tie_word_embeddings": False,
}  # fmt: skip
ROWS = FamilyRows(
    configs={
        "solar-open": {
            **_SIZES, "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 20,
            "attention_bias": True, "routed_scaling_factor": 1.3,
        },
        "solar-open-groups": {
            **_SIZES, "num_hidden_layers": 3, "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 28,
            "n_group": 4, "topk_group": 2, "norm_topk_prob": False, "n_shared_experts": 2, "rope_theta": 3e4,
        },
    },
    repeated=("solar-open", "solar-open-groups"),
    twins={NAME: partial(plain, s=Switches(theta=1e6))},
    defaults={NAME: {"norm_topk_prob": True}},
    model_types={NAME: "solar_open"},
    errors=(
        ("solar-open", {"first_k_dense_replace": 1}, UnsupportedError, "first_k_dense_replace = 1"),
        ("solar-open", {"use_qk_norm": True}, UnsupportedError, "use_qk_norm = true"),
    ),
)  # fmt: skip
