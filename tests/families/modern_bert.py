"""ModernBERT."""

from family_rows import FamilyRows

ROWS = FamilyRows(
    alike={"ModernBertForMaskedLM": "ModernBertModel"},
)  # fmt: skip
