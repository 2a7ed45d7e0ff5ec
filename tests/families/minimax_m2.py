"""MiniMax-M2."""

from functools import partial
from typing import Any

from family_rows import FamilyRows
from reference.plain import Switches, plain

from hybrid.quant.ggml.errors import CheckpointError, UnsupportedError

NAME = "MiniMaxM2ForCausalLM"
_SIZES: dict[str, Any] = {
    "architectures": [NAME], "hidden_size": 96, "intermediate_size": 64, "num_local_experts": 7,
    "num_experts_per_tok": 3, "rms_norm_eps": 1e-6,
}  # fmt: skip
ROWS = FamilyRows(
    configs={
        "minimax-m2": {
            **_SIZES, "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 28,
            "rotary_dim": 20, "rope_theta": 3e5, "tie_word_embeddings": False,
        },
        "minimax-m2-tied": {
            **_SIZES, "num_hidden_layers": 2, "num_attention_heads": 3, "num_key_value_heads": 3, "head_dim": 20,
            "rope_parameters": {"rope_type": "default", "rope_theta": 2e5, "partial_rotary_factor": 0.6},
            "tie_word_embeddings": True,
        },
    },
    repeated=("minimax-m2-tied",),
    twins={NAME: partial(plain, s=Switches(normed="all", theta=5e6))},
    model_types={NAME: "minimax_m2"},
    converted={"minimax-m2": {"model_type": "minimax_m2", "scoring_func": "sigmoid"}},
    refused=("minimax-m2-tied",),
    errors=(
        ("minimax-m2", {"scoring_func": "softmax"}, UnsupportedError, 'scoring_func = "softmax"'),
        ("minimax-m2", {"qk_norm_type": "per_head"}, UnsupportedError, "qk_norm_type"),
        ("minimax-m2", {"attn_type_list": [1, 0, 1]}, UnsupportedError, "attn_type_list"),
        ("minimax-m2", {"shared_intermediate_size": 64}, UnsupportedError, "shared_intermediate_size = 64"),
        ("minimax-m2", {"rotary_dim": 7}, CheckpointError, "rotary_dim = 7"),
    ),
)  # fmt: skip
