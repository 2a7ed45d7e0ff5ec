"""Phi-3.5-MoE."""

from functools import partial

from family_rows import FamilyRows
from reference.plain import Switches, plain

from hybrid.quant.ggml.errors import CheckpointError, UnsupportedError

NAME = "PhiMoEForCausalLM"
ROWS = FamilyRows(
    configs={
        "phimoe": {
            "architectures": [NAME], "hidden_size": 96, "intermediate_size": 64, "num_hidden_layers": 3,
            "num_attention_heads": 6, "num_key_value_heads": 2, "rms_norm_eps": 2e-5, "rope_theta": 1e4,
            "num_local_experts": 7, "num_experts_per_tok": 2, "router_jitter_noise": 0.3, "sliding_window": 512,
            "attention_bias": True, "lm_head_bias": True,
            "rope_scaling": {
                "type": "longrope", "short_factor": [1.0, 1.1, 1.3, 1.6, 2.0, 2.5, 3.0, 4.0], "short_mscale": 1.2,
                "long_factor": [1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0], "long_mscale": 1.2,
                "original_max_position_embeddings": 64,
            },
            "tie_word_embeddings": False,
        },
        "phimoe-window": {
            "architectures": [NAME], "hidden_size": 96, "intermediate_size": 32, "num_hidden_layers": 2,
            "num_attention_heads": 5, "num_key_value_heads": 1, "head_dim": 24, "rms_norm_eps": 1e-5,
            "sliding_window": 9, "num_local_experts": 5, "num_experts_per_tok": 2, "tie_word_embeddings": True,
        },
    },
    repeated=("phimoe-window",),
    twins={NAME: partial(plain, s=Switches(theta=1e6))},
    model_types={NAME: "phimoe"},
    alike={"PhimoeForCausalLM": NAME},
    errors=(
        ("phimoe", {"num_experts_per_tok": 3}, UnsupportedError, "num_experts_per_tok = 3 is not supported, only 2 is"),
        ("phimoe", {"router_jitter_noise": -0.1}, CheckpointError, "router_jitter_noise = -0.1.*not negative"),
        (
            "phimoe", {"rope_scaling": {"type": "yarn", "factor": 2.0}}, UnsupportedError,
            "rope_type = 'yarn' is not supported, only",
        ),
        ("phimoe", {"rope_scaling": {"type": "longrope"}}, CheckpointError, "has no short_mscale"),
        (
            "phimoe", {"rope_scaling": {"type": "longrope", "short_mscale": 1.2, "long_mscale": 1.3}}, UnsupportedError,
            "short_mscale = 1.2 and long_mscale = 1.3 are not supported, only the same",
        ),
    ),
    notes=(
        ("phimoe", {"lm_head_bias": False}, "biases of it and of attention"),
        ("phimoe", {}, "RMS norms and one softmax"),
    ),
    converted={"phimoe": {"model_type": "phimoe", "vocab_size": 2000}},
    refused=("phimoe-window",),
    different=("phimoe",),
    sizes={"phi-3.5-moe": 41.87},
)  # fmt: skip
