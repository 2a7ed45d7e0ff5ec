"""Command R7B."""

from functools import partial

from family_rows import FamilyRows
from reference.plain import Switches, plain

from hybrid.quant.ggml.errors import CheckpointError, UnsupportedError

NAME = "Cohere2ForCausalLM"
ROWS = FamilyRows(
    configs={
        "cohere2": {
            "architectures": [NAME], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 5,
            "num_attention_heads": 6, "num_key_value_heads": 2, "layer_norm_eps": 1e-5, "rope_theta": 5e4,
            "sliding_window": 11, "logit_scale": 0.25,
        },
        "cohere2-order": {
            "architectures": [NAME], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 3,
            "num_attention_heads": 3, "num_key_value_heads": 1, "layer_norm_eps": 2e-4, "sliding_window": 9,
            "layer_types": ["full_attention", "sliding_attention", "full_attention"],
        },
    },
    repeated=("cohere2-order",),
    twins={NAME: partial(plain, s=Switches(("input_layernorm",), neox=False, period=4, nope=True, logit_scale=0.0625))},
    model_types={NAME: "cohere2"},
    examples={
        "cohere-compass": {
            "architectures": ["CohereCompassForConditionalGeneration"], "vision_config": {"depth": 7},
            "tie_word_embeddings": True,
            "text_config": {
                "vocab_size": 40, "hidden_size": 18, "intermediate_size": 20, "num_hidden_layers": 2,
                "num_attention_heads": 3, "num_key_value_heads": 1, "layer_norm_eps": 1e-5, "sliding_window": 5,
                "layer_types": ["sliding_attention", "full_attention"], "max_position_embeddings": 64,
                "rope_parameters": {
                    "sliding_attention": {"rope_theta": 2e4, "mrope_section": [1, 1, 1]}, "full_attention": None,
                },
            },
        },
    },
    errors=(
        ("cohere2", {"attention_bias": True}, UnsupportedError, "attention_bias = true is not supported"),
        ("cohere2", {"use_qk_norm": True}, UnsupportedError, "use_qk_norm = true is not supported"),
        ("cohere2", {"use_parallel_block": False}, UnsupportedError, "use_parallel_block = false is not supported"),
        ("cohere2", {"head_dim": 24}, UnsupportedError, "head_dim = 24 is not supported, only 16 is"),
        ("cohere2", {"sliding_window": None}, CheckpointError, "layer_types.*no sliding_attention"),
        ("cohere2", {"sliding_window_pattern": 0}, CheckpointError, "sliding_window_pattern = 0.*from 1"),
    ),
    converted={"cohere2": {"model_type": "cohere2", "rotary_pct": 1.0}},
    sizes={"command-r7b": 8.03},
)  # fmt: skip
