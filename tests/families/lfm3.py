"""LFM3."""

from family_rows import FamilyRows
from reference.lfm3 import lfm3

from hybrid.quant.ggml.errors import CheckpointError, UnsupportedError

NAME = "Lfm3ForCausalLM"
ROWS = FamilyRows(
    configs={
        "lfm3": {
            "architectures": [NAME], "hidden_size": 96, "intermediate_size": 136, "num_hidden_layers": 4,
            "layer_types": ["conv", "full_attention", "sliding_attention", "conv"], "num_attention_heads": 5,
            "num_key_value_heads": 1, "head_dim": 24, "sliding_window": 11, "conv_L_cache": 6, "norm_eps": 1e-5,
        },
        "lfm3-biased": {  # unpublished: without gates and norms after layers
            "architectures": [NAME], "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3,
            "layer_types": ["sliding_attention", "full_attention", "conv"], "num_attention_heads": 6,
            "num_key_value_heads": 2, "head_dim": 20, "sliding_window": 7, "conv_L_cache": 4, "norm_eps": 2e-4,
            "conv_bias": True, "attention_bias": True, "use_sandwich_norm": False, "use_attention_gate": False,
            "rope_parameters": {
                "full_attention": {
                    "rope_type": "proportional", "rope_theta": 3e4, "partial_rotary_factor": 0.7, "factor": 1.5,
                },
                "sliding_attention": {"rope_type": "default", "rope_theta": 2e3},
            },
        },
        "lfm3-yarn": {
            "architectures": [NAME], "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3,
            "layer_types": ["sliding_attention", "full_attention", "conv"], "num_attention_heads": 4,
            "num_key_value_heads": 2, "head_dim": 24, "sliding_window": 11, "conv_L_cache": 4, "norm_eps": 1e-5,
            "rope_parameters": {
                "full_attention": {
                    "rope_type": "yarn", "rope_theta": 300.0, "factor": 4.0, "beta_fast": 9.0,
                    "original_max_position_embeddings": 128,
                },
                "sliding_attention": {"rope_type": "default", "rope_theta": 1e3},
            },
        },
    },
    twins={NAME: lfm3},
    noise={"lfm3": 2.2e-5},
    model_types={NAME: "lfm3"},
    examples={
        "lfm3-vl": {
            "architectures": ["Lfm3VlForConditionalGeneration"], "vision_config": {"hidden_size": 7},
            "text_config": {
                "vocab_size": 40, "hidden_size": 18, "intermediate_size": 20, "num_hidden_layers": 3,
                "num_attention_heads": 3, "num_key_value_heads": 1,
                "layer_types": ["conv", "full_attention", "sliding_attention"], "head_dim": 8, "sliding_window": 5,
                "max_position_embeddings": 64, "rope_parameters": {"full_attention": {}, "sliding_attention": {}},
            },
        },
    },
    errors=(
        (
            "lfm3", {"layer_types": ["conv"] * 3}, CheckpointError,
            "layer_types = .*4 times conv or sliding_attention or full_attention",
        ),
        (
            "lfm3", {"sliding_window": None}, CheckpointError,
            "sliding_window = null .*for the layers of sliding_attention",
        ),
        ("lfm3", {"head_dim": 23}, CheckpointError, "head_dim = 23.*even size"),
        (
            "lfm3", {"num_key_value_heads": 2}, CheckpointError,
            "num_key_value_heads = 2.*a divisor of the 5 attention heads",
        ),
        (
            "lfm3", {"rope_parameters": {"rope_theta": 1e4}}, CheckpointError,
            "full_attention.*the settings of RoPE of these layers",
        ),
        (
            "lfm3-biased", {"rope_parameters": {"full_attention": {"rope_type": "llama3"}, "sliding_attention": {}}},
            UnsupportedError, "rope_type = 'llama3' is not supported, only default, linear and yarn are",
        ),
        (
            "lfm3", {"rope_parameters": {"full_attention": {}, "sliding_attention": {"rope_type": "yarn"}}},
            UnsupportedError, "yarn",
        ),
        (
            "lfm3",
            {
                "rope_parameters": {
                    "full_attention": {"rope_type": "linear", "factor": 2.0, "partial_rotary_factor": 0.5},
                    "sliding_attention": {},
                },
            },
            CheckpointError, "partial_rotary_factor = 0.5.*1, with rope_type = linear",
        ),
        (
            "lfm3-biased",
            {
                "rope_parameters": {
                    "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 1.5},
                    "sliding_attention": {"rope_theta": 1e4},
                },
            },
            CheckpointError, "rotary_factor = 1.5.*at most 1",
        ),
    ),
    notes=(("lfm3", {}, "no such architecture"),),
    refused=("lfm3-yarn", "lfm3", "lfm3-biased"),
    sizes={"lfm3-1.7b": 1.729},
    loaded=("lfm3",),
)  # fmt: skip
