"""OLMo Hybrid."""

from family_rows import FamilyRows
from reference.olmo_hybrid import olmo_hybrid

from hybrid.quant.ggml.errors import CheckpointError

NAME = "OlmoHybridForCausalLM"
ROWS = FamilyRows(
    configs={
        "olmo-hybrid-biased": {
            "architectures": [NAME], "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
            "num_attention_heads": 4, "num_key_value_heads": 2, "rms_norm_eps": 1e-5, "linear_num_key_heads": 2,
            "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 24, "rope_theta": 1e4,
            "attention_bias": True, "tie_word_embeddings": False,
        },
        "olmo-hybrid": {
            "architectures": [NAME], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 4,
            "layer_types": ["linear_attention", "full_attention", *["linear_attention"] * 2], "num_attention_heads": 6,
            "num_key_value_heads": 2, "rms_norm_eps": 1e-6, "linear_num_key_heads": 3, "linear_num_value_heads": 6,
            "linear_key_head_dim": 24, "linear_value_head_dim": 20, "linear_conv_kernel_dim": 3,
            "rope_parameters": {"rope_type": "default", "rope_theta": None},
        },
        "olmo-hybrid-turned": {
            "architectures": [NAME], "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
            "num_attention_heads": 4, "num_key_value_heads": 4, "rms_norm_eps": 1e-6, "linear_allow_neg_eigval": False,
            "rope_theta": 5e5, "tie_word_embeddings": True,
        },
    },
    twins={NAME: olmo_hybrid},
    model_types={NAME: "olmo_hybrid"},
    errors=(
        (
            "olmo-hybrid", {"linear_num_value_heads": 4}, CheckpointError,
            "linear_num_value_heads = 4.*a multiple of .* = 3",
        ),
        (
            "olmo-hybrid", {"layer_types": ["mamba"] * 4}, CheckpointError,
            "layer_types = .*4 times linear_attention or full_",
        ),
    ),
    notes=(("olmo-hybrid", {}, "no such architecture"),),
    refused=("olmo-hybrid", "olmo-hybrid-turned", "olmo-hybrid-biased"),
    sizes={"olmo-hybrid-7b": 7.43},
    loaded=("olmo-hybrid",),
)  # fmt: skip
