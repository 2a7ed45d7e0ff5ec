"""AFM of Arcee."""

from functools import partial

from family_rows import FamilyRows
from reference.plain import Switches, plain

from hybrid.quant.ggml.errors import UnsupportedError

NAME = "ArceeForCausalLM"
ROWS = FamilyRows(
    configs={
        "arcee": {
            "architectures": [NAME], "hidden_size": 96, "intermediate_size": 200, "num_hidden_layers": 2,
            "num_attention_heads": 6, "num_key_value_heads": 2, "rms_norm_eps": 2e-5, "rope_theta": 3e4,
            "tie_word_embeddings": False,
        },
        "arcee-biased": {
            "architectures": [NAME], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 2,
            "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 24, "rms_norm_eps": 1e-5, "mlp_bias": True,
            "attention_bias": True, "tie_word_embeddings": True,
            "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
        },
    },
    repeated=("arcee-biased",),
    twins={NAME: partial(plain, s=Switches())},
    model_types={NAME: "arcee"},
    errors=(("arcee", {"hidden_act": "silu"}, UnsupportedError, "only .relu2. is"),),
    notes=(("arcee", {"mlp_bias": True}, "no place for biases of attention's output"),),
    converted={"arcee": {"model_type": "arcee"}},
    refused=("arcee-biased",),
    sizes={"afm-4.5b": 4.62},
)  # fmt: skip
