"""EXAONE 4."""

from functools import partial

from family_rows import FamilyRows
from reference.plain import POST, Switches, plain

from hybrid.quant.ggml.errors import CheckpointError

NAME = "Exaone4ForCausalLM"
ROWS = FamilyRows(
    configs={
        "exaone4": {
            "architectures": [NAME], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 2,
            "num_attention_heads": 6, "num_key_value_heads": 2, "rms_norm_eps": 1e-5, "rope_theta": 1e6,
            "sliding_window": None, "layer_types": ["full_attention"] * 2, "tie_word_embeddings": True,
        },
        "exaone4-window": {
            "architectures": [NAME], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 5,
            "num_attention_heads": 5, "num_key_value_heads": 1, "head_dim": 24, "rms_norm_eps": 1e-6, "rope_theta": 1e5,
            "rope_scaling": {"rope_type": "linear", "factor": 2.5}, "sliding_window": 9, "sliding_window_pattern": 3,
            "tie_word_embeddings": False,
        },
    },
    repeated=("exaone4-window",),
    twins={NAME: partial(plain, s=Switches((), POST, "heads", period=4, nope=True))},
    model_types={NAME: "exaone4"},
    errors=(
        (
            "exaone4-window", {"sliding_window_pattern": "LLX"}, CheckpointError,
            "sliding_window_pattern = .LLX.*an integer",
        ),
        (
            "exaone4", {"layer_types": ["sliding_attention"] * 2}, CheckpointError,
            "layer_types = .*no sliding_attention",
        ),
    ),
    notes=(
        ("exaone4", {"sliding_window": 9, "layer_types": ["full_attention", "sliding_attention"]}, "64 layers, and no"),
        ("exaone4", {"head_dim": 24}, "together are as wide as the model"),
    ),
    converted={"exaone4": {"model_type": "exaone4"}, "exaone4-window": {"model_type": "exaone4"}},
    different=("exaone4-window",),
    sizes={"exaone-4-1.2b": 1.28},
)  # fmt: skip
