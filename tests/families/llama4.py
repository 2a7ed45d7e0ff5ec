"""Llama 4."""

from family_rows import FamilyRows
from reference.llama4 import llama4

from hybrid.quant.ggml.errors import CheckpointError, UnsupportedError

NAME = "Llama4ForCausalLM"
ROWS = FamilyRows(
    configs={
        "llama4": {  # chunks and scales that no small text reaches, like Maverick except for the norms
            "architectures": [NAME], "hidden_size": 64, "intermediate_size": 32, "intermediate_size_mlp": 96,
            "num_hidden_layers": 5, "num_attention_heads": 5, "num_key_value_heads": 1, "head_dim": 24,
            "rms_norm_eps": 1e-5, "num_local_experts": 3, "interleave_moe_layer_step": 2,
        },
        "llama4-window": {  # chunks; experts on every second layer, one for each token
            "architectures": [NAME], "hidden_size": 96, "intermediate_size": 64, "intermediate_size_mlp": 160,
            "num_hidden_layers": 5, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 20,
            "rms_norm_eps": 1e-5, "num_local_experts": 5, "interleave_moe_layer_step": 2, "attention_chunk_size": 11,
            "floor_scale": 8, "attn_scale": 0.3,
            "rope_scaling": {
                "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 1.0,
                "original_max_position_embeddings": 30,
            },
        },
        "llama4-order": {  # other layers than usual have RoPE, chunks and experts; no norms of queries and keys
            "architectures": [NAME], "hidden_size": 64, "intermediate_size": 32, "intermediate_size_mlp": 96,
            "num_hidden_layers": 4, "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 24,
            "rms_norm_eps": 3e-4, "rope_theta": 1e4, "num_local_experts": 7, "num_experts_per_tok": 3,
            "moe_layers": [0, 1, 3], "no_rope_layers": [0, 1, 1, 0], "use_qk_norm": False, "attention_chunk_size": 9,
            "layer_types": ["chunked_attention", "full_attention", "chunked_attention", "full_attention"],
            "floor_scale": 5, "attn_scale": 0.2, "tie_word_embeddings": True,
        },
    },
    twins={NAME: llama4},
    model_types={NAME: "llama4_text"},
    examples={
        "llama4-pictures": {
            "architectures": ["Llama4ForConditionalGeneration"], "vision_config": {"hidden_size": 7},
            "text_config": {
                "vocab_size": 40, "hidden_size": 18, "intermediate_size": 10, "intermediate_size_mlp": 20,
                "num_hidden_layers": 5, "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 8,
                "num_local_experts": 3, "interleave_moe_layer_step": 2, "attention_chunk_size": 7, "floor_scale": 9,
                "max_position_embeddings": 64, "rope_theta": 5e5,
            },
        },
    },
    errors=(
        ("llama4-window", {"moe_layers": [1, "2"]}, CheckpointError, "moe_layers = .*numbers of layers"),
        ("llama4-window", {"interleave_moe_layer_step": 0}, CheckpointError, "interleave_moe_layer_step = 0.*from 1"),
        ("llama4-window", {"attn_scale": -1.0}, CheckpointError, "attn_scale = -1.*at least 0"),
        (
            "llama4-window", {"attention_chunk_size": None}, CheckpointError,
            "attention_chunk_size = null.*a number of tokens",
        ),
        ("llama4-window", {"num_experts_per_tok": 6}, CheckpointError, "num_experts_per_tok = 6.*from 1 to 5"),
        (
            "llama4-window", {"no_rope_layers": [1]}, CheckpointError,
            "no_rope_layers = .*5 times 1 for a layer with RoPE",
        ),
        (
            "llama4-window", {"layer_types": ["sliding_attention"] * 5}, CheckpointError,
            "layer_types = .*5 times chunked_attention or full",
        ),
        ("llama4-window", {"hidden_act": "gelu"}, UnsupportedError, "hidden_act"),
    ),
    converted={"llama4": {"model_type": "llama4_text"}},
    refused=("llama4-order",),
    different=("llama4-window",),
    sizes={"llama-4-scout": 107.8, "llama-4-maverick": 400.7, "llama-4-slice": 4.85},
    loaded=("llama4-window",),
)  # fmt: skip
