"""RWKV-4."""

from family_rows import FamilyRows
from reference.rwkv import rwkv4_5

from hybrid.quant.ggml.errors import UnsupportedError

NAME = "RwkvForCausalLM"
ROWS = FamilyRows(
    configs={
        "rwkv4": {
            "architectures": [NAME], "hidden_size": 72, "intermediate_size": 160, "num_hidden_layers": 5,
            "rescale_every": 2,
        },
        "rwkv4-tied": {
            "architectures": [NAME], "hidden_size": 64, "num_hidden_layers": 2, "rescale_every": 0,
            "tie_word_embeddings": True,
        },
    },
    repeated=("rwkv4-tied",),
    twins={NAME: rwkv4_5},
    model_types={NAME: "rwkv"},
    errors=(
        ("rwkv4", {"layer_norm_epsilon": 1e-3}, UnsupportedError, "layer_norm_epsilon = 0.001"),
        ("rwkv4", {"attention_hidden_size": 80}, UnsupportedError, "attention_hidden_size = 80"),
    ),
    notes=(("rwkv4", {}, "no such architecture"),),
    refused=("rwkv4", "rwkv4-tied"),
    sizes={"rwkv4-169m": 0.1693},
    loaded=("rwkv4",),
)  # fmt: skip
