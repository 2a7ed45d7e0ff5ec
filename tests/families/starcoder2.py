"""StarCoder2 and Phi-2."""

from family_rows import FamilyRows
from reference.starcoder2 import starcoder2

ROWS = FamilyRows(
    configs={
        "phi2": {
            "architectures": ["PhiForCausalLM"], "hidden_size": 96, "intermediate_size": 384, "num_hidden_layers": 2,
            "num_attention_heads": 4, "layer_norm_eps": 1e-5, "partial_rotary_factor": 0.5, "hidden_act": "gelu_new",
            "tie_word_embeddings": False,
        },
        "starcoder2": {
            "architectures": ["Starcoder2ForCausalLM"], "hidden_size": 96, "intermediate_size": 160,
            "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 2, "norm_epsilon": 1e-5,
            "rope_theta": 1e5, "use_bias": True, "hidden_act": "gelu_pytorch_tanh",
        },
        "starcoder2-window": {
            "architectures": ["Starcoder2ForCausalLM"], "hidden_size": 96, "intermediate_size": 160,
            "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 2, "norm_epsilon": 1e-5,
            "rope_theta": 1e5, "use_bias": True, "hidden_act": "gelu_pytorch_tanh", "sliding_window": 11,
            "rope_scaling": {"type": "linear", "factor": 2.5},
        },
    },
    twins={"PhiForCausalLM": starcoder2, "Starcoder2ForCausalLM": starcoder2},
    model_types={"PhiForCausalLM": "phi", "Starcoder2ForCausalLM": "starcoder2"},
    converted={"starcoder2": {"model_type": "starcoder2"}, "phi2": {"model_type": "phi", "num_key_value_heads": None}},
    different=("starcoder2-window",),
    mlx={"starcoder2": "starcoder2"},
)  # fmt: skip
