"""Falcon."""

from family_rows import FamilyRows
from reference.ungated import falcon

from hybrid.quant.ggml.errors import CheckpointError, UnsupportedError

NAME = "FalconForCausalLM"
ROWS = FamilyRows(
    configs={
        "falcon": {
            "architectures": [NAME], "hidden_size": 96, "num_hidden_layers": 2, "num_attention_heads": 6,
            "layer_norm_epsilon": 3e-4, "rope_theta": 2e4,
        },
        "falcon-normed": {
            "architectures": [NAME], "hidden_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
            "num_kv_heads": 2, "new_decoder_architecture": True, "ffn_hidden_size": 160, "tie_word_embeddings": False,
        },
        "falcon-yarn": {
            "architectures": [NAME], "hidden_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
            "rope_parameters": {
                "rope_type": "yarn", "rope_theta": 300.0, "factor": 4.0, "attention_factor": 1.3,
                "original_max_position_embeddings": 128,
            },
        },
    },
    twins={NAME: falcon},
    model_types={NAME: "falcon"},
    errors=(
        ("falcon", {"rope_scaling": {"rope_type": "llama3"}}, UnsupportedError, "only default, linear and yarn are"),
        ("falcon", {"alibi": True}, UnsupportedError, "alibi = true is not supported, only false is"),
        ("falcon", {"parallel_attn": False}, UnsupportedError, "parallel_attn = false is not supported, only true is"),
        ("falcon", {"bias": True}, UnsupportedError, "bias = true is not supported, only false is"),
        (
            "falcon", {"num_attention_heads": 7}, CheckpointError,
            "num_attention_heads = 7.*a divisor of the hidden size 96",
        ),
        ("falcon", {"multi_query": False, "num_kv_heads": 3}, CheckpointError, "num_kv_heads = 3.*expected 6"),
        ("falcon-normed", {"num_kv_heads": 3}, CheckpointError, "num_kv_heads = 3.*a divisor of the 4 attention heads"),
        ("falcon", {"num_attention_heads": 32}, CheckpointError, "num_attention_heads = 32.*heads of even size"),
    ),
    notes=(("falcon", {}, "computes GELU by its tanh formula"),),
    converted={
        "falcon-yarn": {"model_type": "falcon", "num_kv_heads": 1, "max_position_embeddings": 2048},
        "falcon": {"model_type": "falcon", "num_kv_heads": 1, "max_position_embeddings": 2048},
        "falcon-normed": {"model_type": "falcon", "max_position_embeddings": 2048, "ffn_hidden_size": 384},
    },
    sizes={"falcon-7b": 6.92},
    loaded=("falcon",),
)  # fmt: skip
