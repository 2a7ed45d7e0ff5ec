"""BERT and RoBERTa."""

from family_rows import FamilyRows

ROWS = FamilyRows(
    alike={
        "BertForMaskedLM": "BertModel", "CamembertModel": "XLMRobertaModel", "RobertaForMaskedLM": "XLMRobertaModel",
        "RobertaModel": "XLMRobertaModel", "XLMRobertaForMaskedLM": "XLMRobertaModel",
        "RobertaForSequenceClassification": "XLMRobertaForSequenceClassification",
    },
)  # fmt: skip
