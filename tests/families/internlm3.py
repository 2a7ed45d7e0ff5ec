"""InternLM3, a class that transformers takes for a Llama."""

from functools import partial
from typing import Any

from family_rows import FamilyRows
from reference.plain import Switches, plain

from hybrid.quant.ggml.errors import CheckpointError

NAME = "InternLM3ForCausalLM"
_SIZES: dict[str, Any] = {
    "architectures": [NAME], "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 2, "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
}  # fmt: skip
ROWS = FamilyRows(
    configs={
        "internlm3": {
            **_SIZES, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 20, "rope_theta": 5e4,
            "rope_scaling": {"rope_type": "dynamic", "factor": 6.0}, "qkv_bias": False, "bias": False,
        },
        "internlm3-biased": {
            **_SIZES, "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 28, "qkv_bias": True,
            "bias": True,
        },
    },
    repeated=("internlm3", "internlm3-biased"),
    twins={NAME: partial(plain, s=Switches())},
    model_types={NAME: "internlm3"},
    published={
        NAME: {
            "vocab_size": 128512, "hidden_size": 4096, "intermediate_size": 10240, "num_hidden_layers": 48,
            "num_attention_heads": 32, "num_key_value_heads": 2, "head_dim": 128, "hidden_act": "silu",
            "max_position_embeddings": 32768, "rms_norm_eps": 1e-5, "rope_theta": 50000000, "qkv_bias": False,
            "rope_scaling": {"rope_type": "dynamic", "factor": 6.0}, "bias": False, "attention_dropout": 0.0,
            "initializer_range": 0.02, "use_cache": True, "tie_word_embeddings": False, "bos_token_id": 1,
            "eos_token_id": 2, "pad_token_id": 2,
        }
    },
    errors=(("internlm3", {"bias": True}, CheckpointError, "bias = true .*expected false, as qkv_bias"),),
)  # fmt: skip
