"""BERT and RoBERTa."""

from family_rows import FamilyRows

ROWS = FamilyRows(
    encoders={
        "bert": {
            "architectures": ["BertModel"], "vocab_size": 2000, "hidden_size": 60, "intermediate_size": 104,
            "num_hidden_layers": 3, "num_attention_heads": 5, "max_position_embeddings": 160, "type_vocab_size": 2,
            "layer_norm_eps": 1e-12, "hidden_act": "gelu",
        },
        "roberta": {
            "architectures": ["XLMRobertaModel"], "vocab_size": 2000, "hidden_size": 48, "intermediate_size": 80,
            "num_hidden_layers": 2, "num_attention_heads": 3, "max_position_embeddings": 202, "type_vocab_size": 1,
            "layer_norm_eps": 1e-5, "hidden_act": "gelu", "pad_token_id": 1,
        },
        "bert-scores": {
            "architectures": ["BertForSequenceClassification"], "vocab_size": 2000, "hidden_size": 56,
            "intermediate_size": 88, "num_hidden_layers": 2, "num_attention_heads": 7, "max_position_embeddings": 190,
            "type_vocab_size": 2, "layer_norm_eps": 1e-12, "hidden_act": "gelu",
            "id2label": {"0": "far", "1": "near", "2": "same"},
        },
        "roberta-scores": {
            "architectures": ["XLMRobertaForSequenceClassification"], "vocab_size": 2000, "hidden_size": 40,
            "intermediate_size": 72, "num_hidden_layers": 2, "num_attention_heads": 5, "max_position_embeddings": 190,
            "type_vocab_size": 1, "layer_norm_eps": 1e-5, "hidden_act": "gelu", "pad_token_id": 1,
            "id2label": {"0": "LABEL_0"},
        },
        "bert-even": {
            "architectures": ["BertModel"], "vocab_size": 2000, "hidden_size": 64, "intermediate_size": 96,
            "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 600, "type_vocab_size": 1,
            "layer_norm_eps": 1e-6, "hidden_act": "gelu",
        },
    },
    alike={
        "BertForMaskedLM": "BertModel", "CamembertModel": "XLMRobertaModel", "RobertaForMaskedLM": "XLMRobertaModel",
        "RobertaModel": "XLMRobertaModel", "XLMRobertaForMaskedLM": "XLMRobertaModel",
        "RobertaForSequenceClassification": "XLMRobertaForSequenceClassification",
    },
    converted={
        "bert-scores": {"model_type": "bert", "vocab_size": 2000},
        "roberta-scores": {"architectures": ["RobertaForSequenceClassification"], "model_type": "roberta"},
    },
)  # fmt: skip
