"""Seed-OSS."""

from functools import partial

from family_rows import FamilyRows
from reference.plain import Switches, plain

NAME = "SeedOssForCausalLM"
ROWS = FamilyRows(
    configs={
        "seed-oss": {
            "architectures": [NAME], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 2,
            "num_attention_heads": 5, "num_key_value_heads": 1, "head_dim": 24, "rms_norm_eps": 1e-6, "rope_theta": 1e7,
            "tie_word_embeddings": False,
        },
        "seed-oss-biased": {
            "architectures": [NAME], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 2,
            "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 16, "rms_norm_eps": 1e-5, "rope_theta": 1e5,
            "attention_bias": False, "attention_out_bias": True, "mlp_bias": True, "tie_word_embeddings": True,
        },
    },
    repeated=("seed-oss-biased",),
    twins={NAME: partial(plain, s=Switches())},
    model_types={NAME: "seed_oss"},
    notes=(
        ("seed-oss", {"attention_out_bias": True}, "no place for biases of attention's output"),
        ("seed-oss", {"mlp_bias": True}, "no place for biases"),
    ),
    converted={"seed-oss": {"model_type": "seed_oss"}},
    refused=("seed-oss-biased",),
    mlx={"seed_oss": "seed-oss"},
    sizes={"seed-oss-36b": 36.15},
)  # fmt: skip
