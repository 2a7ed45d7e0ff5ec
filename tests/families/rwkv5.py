"""RWKV-5, which transformers lacks."""

from family_rows import FamilyRows
from reference.rwkv import rwkv4_5

from hybrid.quant.ggml.errors import CheckpointError, UnsupportedError

NAME = "Rwkv5ForCausalLM"
ROWS = FamilyRows(
    configs={
        "rwkv5": {
            "architectures": [NAME], "hidden_size": 96, "num_hidden_layers": 3, "head_size": 24, "rescale_every": 2,
            "head_size_divisor": 5,
        },
    },
    twins={NAME: rwkv4_5},
    published={
        NAME: {
            "vocab_size": 65536, "hidden_size": 2048, "attention_hidden_size": 2048, "intermediate_size": None,
            "num_hidden_layers": 24, "head_size": 64, "head_size_divisor": 8, "num_attention_heads": 64,
            "layer_norm_epsilon": 1e-5, "rescale_every": 6, "tie_word_embeddings": False, "use_cache": True,
            "context_length": 4096, "model_version": "5_2", "bos_token_id": 0, "eos_token_id": 0,
        },
    },
    errors=(
        ("rwkv5", {"layer_norm_epsilon": 1e-3}, UnsupportedError, "layer_norm_epsilon = 0.001"),
        ("rwkv5", {"head_size": 7}, CheckpointError, "head_size = 7 .*, expected a divisor of the hidden size 96"),
    ),
    notes=(("rwkv5", {}, "no such architecture"),),
    refused=("rwkv5",),
    sizes={"rwkv5-1.5b": 1.578},
    loaded=("rwkv5",),
)  # fmt: skip
