"""K-EXAONE."""

from functools import partial
from typing import Any

from family_rows import FamilyRows
from reference.plain import Switches, plain

from hybrid.quant.ggml.errors import CheckpointError, UnsupportedError

NAME = "ExaoneMoeForCausalLM"
_SIZES: dict[str, Any] = {
    "architectures": [NAME], "hidden_size": 96, "intermediate_size": 136, "num_attention_heads": 6,
    "num_key_value_heads": 2, "head_dim": 20, "num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 40,
}  # fmt: skip
ROWS = FamilyRows(
    configs={
        "exaone-moe": {**_SIZES, "num_hidden_layers": 4, "sliding_window": 11, "rope_theta": 2e4},
        "exaone-moe-groups": {
            **_SIZES, "num_hidden_layers": 3, "sliding_window": 9, "n_group": 4, "topk_group": 2,
            "layer_types": ["full_attention", "sliding_attention", "full_attention"], "num_shared_experts": 2,
            "mlp_layer_types": ["dense", "dense", "sparse"], "norm_topk_prob": False, "routed_scaling_factor": 1.3,
            "rms_norm_eps": 1e-4,
        },
    },
    repeated=("exaone-moe-groups",),
    twins={NAME: partial(plain, s=Switches(normed="heads", period=4, nope=True))},
    defaults={
        NAME: {
            "rms_norm_eps": 1e-5, "sliding_window": 4096, "norm_topk_prob": True, "routed_scaling_factor": 2.5,
        },
    },
    model_types={NAME: "exaone_moe"},
    alike={"ExaoneMoEForCausalLM": NAME},
    converted={"exaone-moe": {
        "model_type": "exaone_moe", "scoring_func": "sigmoid", "num_shared_experts": 1, "routed_scaling_factor": 2.5,
        "norm_topk_prob": True, "first_k_dense_replace": 1, "sliding_window_pattern": 4,
    }},
    errors=(
        ("exaone-moe", {"scoring_func": "softmax"}, UnsupportedError, 'scoring_func = "softmax"'),
        ("exaone-moe", {"n_group": 5, "topk_group": 2}, CheckpointError, "n_group = 5"),
        ("exaone-moe", {"mlp_layer_types": ["sparse", "dense"] * 2}, CheckpointError, "layers without experts"),
    ),
    notes=(
        ("exaone-moe", {"sliding_window": None}, "it wants a window"),
        ("exaone-moe", {"tie_word_embeddings": True}, "it wants an output matrix apart from the embedding"),
    ),
)  # fmt: skip
