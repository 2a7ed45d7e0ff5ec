"""ModernBERT."""

from family_rows import FamilyRows

ROWS = FamilyRows(
    encoders={
        "modern-bert": {
            "architectures": ["ModernBertModel"], "vocab_size": 2000, "hidden_size": 60, "intermediate_size": 88,
            "num_hidden_layers": 5, "num_attention_heads": 3, "max_position_embeddings": 700, "local_attention": 22,
            "global_attn_every_n_layers": 2, "global_rope_theta": 80000.0, "local_rope_theta": 5000.0, "norm_eps": 1e-4,
            "hidden_activation": "silu", "classifier_pooling": "mean", "pad_token_id": 0,
        },
        "modern-bert-scores": {
            "architectures": ["ModernBertForSequenceClassification"], "vocab_size": 2000, "hidden_size": 48,
            "intermediate_size": 72, "num_hidden_layers": 4, "num_attention_heads": 4, "max_position_embeddings": 256,
            "local_attention": 12, "norm_eps": 1e-5, "hidden_activation": "gelu", "classifier_pooling": "mean",
            "id2label": {"0": "no", "1": "yes"}, "pad_token_id": 0,
        },
        "modern-bert-first": {
            "architectures": ["ModernBertForSequenceClassification"], "vocab_size": 2000, "hidden_size": 40,
            "intermediate_size": 56, "num_hidden_layers": 2, "num_attention_heads": 5, "max_position_embeddings": 256,
            "layer_types": ["full_attention", "sliding_attention"], "local_attention": 9, "num_labels": 1,
            "rope_parameters": {
                "full_attention": {"rope_theta": 40000.0, "rope_type": "default"},
                "sliding_attention": {"rope_theta": 9000.0, "rope_type": "default"},
            },
            "pad_token_id": 0,
        },
    },
    alike={"ModernBertForMaskedLM": "ModernBertModel"},
    converted={
        "modern-bert": {"model_type": "modernbert", "layer_norm_eps": 1e-4},
        "modern-bert-scores": {"model_type": "modernbert", "layer_norm_eps": 1e-5},
    },
)  # fmt: skip
