"""StableLM 2."""

from functools import partial

from family_rows import FamilyRows
from reference.plain import Switches, plain

from hybrid.quant.ggml.errors import CheckpointError, UnsupportedError

NAME = "StableLmForCausalLM"
ROWS = FamilyRows(
    configs={
        "stablelm": {
            "architectures": [NAME], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 2,
            "num_attention_heads": 3, "num_key_value_heads": 1, "layer_norm_eps": 1e-5, "use_qkv_bias": True,
            "tie_word_embeddings": False,
        },
    },
    twins={NAME: partial(plain, s=Switches(part=0.25))},
    model_types={NAME: "stablelm"},
    alike={"StableLMEpochForCausalLM": NAME},
    errors=(
        ("stablelm", {"qk_layernorm": True}, UnsupportedError, "qk_layernorm = true is not supported"),
        (
            "stablelm", {"use_parallel_residual": True}, UnsupportedError,
            "use_parallel_residual = true is not supported",
        ),
        ("stablelm", {"partial_rotary_factor": 0.1}, CheckpointError, "hidden_size.*a positive even number"),
    ),
    notes=(("stablelm", {"tie_word_embeddings": True}, "an output matrix apart"),),
    converted={"stablelm": {"model_type": "stablelm"}},
    sizes={"stablelm-2-1.6b": 1.645},
)  # fmt: skip
