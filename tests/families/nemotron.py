"""Nemotron."""

from functools import partial

from family_rows import FamilyRows
from reference.plain import Switches, plain

from hybrid.quant.ggml.errors import CheckpointError

NAME = "NemotronForCausalLM"
ROWS = FamilyRows(
    configs={
        "nemotron": {
            "architectures": [NAME], "hidden_size": 96, "intermediate_size": 200, "num_hidden_layers": 3,
            "num_attention_heads": 6, "num_key_value_heads": 2, "norm_eps": 2e-5, "rope_theta": 3e4,
            "tie_word_embeddings": False,
        },
        "nemotron-biased": {
            "architectures": [NAME], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 2,
            "num_attention_heads": 5, "num_key_value_heads": 1, "head_dim": 24, "norm_eps": 1e-5, "mlp_bias": True,
            "attention_bias": True, "partial_rotary_factor": 0.75, "tie_word_embeddings": True,
        },
    },
    repeated=("nemotron-biased",),
    twins={NAME: partial(plain, s=Switches(part=0.5, plus=1.0))},
    model_types={NAME: "nemotron"},
    errors=(("nemotron", {"partial_rotary_factor": 0.01}, CheckpointError, "a positive even number"),),
    notes=(("nemotron", {"tie_word_embeddings": True}, "an output matrix apart"),),
    converted={"nemotron": {"model_type": "nemotron", "vocab_size": 2000}},
    refused=("nemotron-biased",),
    sizes={"minitron-4b": 4.19},
)  # fmt: skip
