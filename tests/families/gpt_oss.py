"""gpt-oss."""

from family_rows import FamilyRows
from reference.gpt_oss import gpt_oss

from hybrid.quant.ggml.errors import CheckpointError

NAME = "GptOssForCausalLM"
ROWS = FamilyRows(
    configs={
        "gpt-oss-rounded": {  # YaRN's bounds are rounded to whole pairs, as in llama.cpp
            "architectures": [NAME], "hidden_size": 96, "intermediate_size": 64, "num_hidden_layers": 3,
            "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 24, "rms_norm_eps": 2e-4,
            "num_local_experts": 7, "num_experts_per_tok": 3, "sliding_window": 11, "rope_theta": 300.0,
            "rope_scaling": {
                "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "truncate": True,
                "beta_fast": 32.0, "beta_slow": 1.0,
            },
            "tie_word_embeddings": False,
        },
        "gpt-oss-window": {  # other layers, limits that are reached, YaRN's bounds between pairs, no attention biases
            "architectures": [NAME], "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3,
            "num_attention_heads": 5, "num_key_value_heads": 1, "head_dim": 40, "rms_norm_eps": 1e-5,
            "num_local_experts": 5, "num_experts_per_tok": 2, "sliding_window": 9, "attention_bias": False,
            "layer_types": ["full_attention", "sliding_attention", "sliding_attention"], "swiglu_limit": 0.6,
            "swiglu_alpha": 1.3,
            "rope_parameters": {
                "rope_type": "yarn", "rope_theta": 300.0, "factor": 4.0, "truncate": False,
                "original_max_position_embeddings": 128, "beta_fast": 9.0, "beta_slow": 2.5,
            },
            "tie_word_embeddings": False,
        },
    },
    twins={NAME: gpt_oss},
    noise={"gpt-oss": 9.8e-5},
    model_types={NAME: "gpt_oss"},
    errors=(
        (
            "gpt-oss-rounded", {"sliding_window": None}, CheckpointError,
            "sliding_window = null.*for the layers of sliding_att",
        ),
        (
            "gpt-oss-rounded", {"layer_types": ["full_attention"]}, CheckpointError,
            "layer_types = .*3 times sliding_attention or full",
        ),
        ("gpt-oss-rounded", {"swiglu_limit": 0}, CheckpointError, "swiglu_limit = 0.*a positive number"),
        ("gpt-oss-rounded", {"num_experts_per_tok": 8}, CheckpointError, "num_experts_per_tok = 8.*from 1 to 7"),
    ),
    converted={"gpt-oss-rounded": {"model_type": "gpt_oss"}, "gpt-oss-rounded-mxfp4": {"model_type": "gpt_oss"}},
    refused=("gpt-oss-window",),
    different=("gpt-oss",),
    sizes={"gpt-oss-20b": 20.91},
    loaded=("gpt-oss-rounded",),
)  # fmt: skip
