"""EmbeddingGemma."""

from family_rows import FamilyRows

NAME = "Gemma3TextModel"
ROWS = FamilyRows(
    encoders={
        "embedding-gemma": {
            "architectures": [NAME], "vocab_size": 2000, "hidden_size": 60, "intermediate_size": 72,
            "num_hidden_layers": 3, "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 26,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"], "max_position_embeddings": 400,
            "sliding_window": 15, "query_pre_attn_scalar": 26, "rms_norm_eps": 1e-5, "rope_theta": 5e5,
            "rope_local_base_freq": 8e3, "use_bidirectional_attention": True, "pad_token_id": 0,
        },
    },
    converted={"embedding-gemma": {"model_type": "gemma3_text", "layer_types": None, "sliding_window_pattern": 6}},
)  # fmt: skip
