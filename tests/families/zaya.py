"""ZAYA1."""

from family_rows import FamilyRows
from reference.zaya import zaya

from hybrid.quant.ggml.errors import CheckpointError, UnsupportedError

NAME = "ZayaForCausalLM"
ROWS = FamilyRows(
    configs={
        "zaya": {
            "architectures": [NAME], "hidden_size": 96, "num_hidden_layers": 3, "num_attention_heads": 6,
            "num_key_value_heads": 2, "head_dim": 20, "moe_intermediate_size": 64, "num_experts": 3,
            "router_hidden_size": 24, "cca_time0": 3, "cca_time1": 4, "rms_norm_eps": 2e-4, "attention_bias": True,
            "rope_parameters": {"rope_type": "default", "hybrid": {"rope_theta": 1e5, "partial_rotary_factor": 0.6}},
        },
        "zaya-window": {
            "architectures": [NAME], "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 2,
            "num_key_value_heads": 1, "head_dim": 24, "moe_intermediate_size": 32, "num_experts": 5,
            "router_hidden_size": 16, "cca_time0": 2, "cca_time1": 1, "sliding_window": 11, "lm_head_bias": True,
            "rms_norm_eps": 1e-5, "layer_types": ["hybrid_sliding", "hybrid", "hybrid_sliding"],
            "tie_word_embeddings": False,
        },
        "zaya-yarn": {
            "architectures": [NAME], "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 2,
            "num_key_value_heads": 1, "head_dim": 24, "moe_intermediate_size": 32, "num_experts": 3,
            "router_hidden_size": 16, "sliding_window": 11, "rms_norm_eps": 1e-5,
            "layer_types": ["hybrid_sliding", "hybrid", "hybrid"],
            "rope_parameters": {
                "hybrid": {
                    "rope_type": "yarn", "rope_theta": 300.0, "factor": 4.0, "partial_rotary_factor": 0.5,
                    "original_max_position_embeddings": 128,
                },
                "hybrid_sliding": {"rope_type": "default", "rope_theta": 1e3, "partial_rotary_factor": 1.0},
            },
        },
    },
    twins={NAME: zaya},
    noise={"zaya": 1.1e-5},
    model_types={NAME: "zaya"},
    errors=(
        ("zaya", {"num_experts_per_tok": 2}, UnsupportedError, "num_experts_per_tok = 2 is not supported, only 1 is"),
        ("zaya", {"hidden_act": "gelu"}, UnsupportedError, 'hidden_act = "gelu" is not supported, only "silu" is'),
        (
            "zaya", {"num_key_value_heads": 4}, CheckpointError,
            "num_key_value_heads = 4.*a divisor of the 6 attention heads",
        ),
        (
            "zaya", {"num_key_value_heads": 3, "head_dim": 21}, CheckpointError,
            "head_dim = 21.*an even number of values",
        ),
        ("zaya", {"cca_time0": 1, "cca_time1": 1}, CheckpointError, "cca_time1 = 1.*2 or more, where cca_time0 is 1"),
        ("zaya", {"layer_types": ["hybrid"]}, CheckpointError, "layer_types = .*3 times hybrid or hybrid_sliding"),
        ("zaya", {"rope_parameters": {"hybrid": {}}}, CheckpointError, "has no rope_theta"),
        ("zaya", {"rope_parameters": {}}, CheckpointError, "has no rope_theta"),
        (
            "zaya", {"rope_parameters": {"hybrid": {"rope_theta": 9.0, "rope_type": "dynamic", "factor": 2.0}}},
            UnsupportedError, "rope_type = 'dynamic' is not supported, only default, linear and yarn are",
        ),
        (
            "zaya-window",
            {
                "rope_parameters": {
                    "hybrid": {"rope_theta": 9.0},
                    "hybrid_sliding": {"rope_theta": 9.0, "rope_type": "linear", "factor": 2.0},
                },
            },
            UnsupportedError, 'rope_type = "linear" is not supported, only "default" is',
        ),
        (
            "zaya", {"rope_parameters": {"hybrid": {"rope_theta": 9.0, "partial_rotary_factor": 0.15}}},
            CheckpointError,
            "rope_parameters = .*a positive even number of values to turn in heads of 20; hybrid has 3",
        ),
        (
            "zaya-window", {"sliding_window": None}, CheckpointError,
            "sliding_window = null.*for the layers of hybrid_sliding",
        ),
    ),
    notes=(("zaya", {}, "no such architecture"),),
    refused=("zaya", "zaya-window", "zaya-yarn"),
    sizes={"zaya1-8b": 8.3 + 0.537},  # stated without the embedding
    loaded=("zaya",),
)  # fmt: skip
