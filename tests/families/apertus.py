"""Apertus."""

from functools import partial

from family_rows import FamilyRows
from reference.plain import Switches, plain

from hybrid.quant.ggml.errors import UnsupportedError

NAME = "ApertusForCausalLM"
_SWITCHES = Switches(
    before=("attention_layernorm", "feedforward_layernorm"),
    normed="heads",
    absent={
        "rope_parameters": {
            "rope_type": "llama3", "rope_theta": 12e6, "factor": 8.0, "original_max_position_embeddings": 8192,
            "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        }
    },
)  # fmt: skip
ROWS = FamilyRows(
    configs={
        "apertus": {
            "architectures": [NAME], "hidden_size": 96, "intermediate_size": 200, "num_hidden_layers": 3,
            "num_attention_heads": 6, "num_key_value_heads": 2, "rms_norm_eps": 2e-5, "hidden_act": "xielu",
            "rope_parameters": {
                "rope_type": "llama3", "rope_theta": 5e4, "factor": 4.0, "original_max_position_embeddings": 64,
                "low_freq_factor": 1.0, "high_freq_factor": 3.0,
            },
            "tie_word_embeddings": False,
        },
        "apertus-biased": {
            "architectures": [NAME], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 2,
            "num_attention_heads": 5, "num_key_value_heads": 1, "head_dim": 24, "rms_norm_eps": 1e-5,
            "attention_bias": True, "tie_word_embeddings": True,
        },
    },
    repeated=("apertus-biased",),
    twins={NAME: partial(plain, s=_SWITCHES)},
    model_types={NAME: "apertus"},
    errors=(
        ("apertus", {"hidden_act": "silu"}, UnsupportedError, "hidden_act = .silu. is not supported, only .xielu. is"),
    ),
    notes=(("apertus", {"tie_word_embeddings": True}, "an output matrix apart"),),
    converted={"apertus": {"model_type": "apertus"}},
    refused=("apertus-biased",),
    sizes={"apertus-8b": 8.053},
)  # fmt: skip
