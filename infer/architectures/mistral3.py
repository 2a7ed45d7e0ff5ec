"""Ministral 3: Llama with queries scaled by position; also Mistral Small 3.1, without scaling. arXiv:2601.08584"""

from typing import Any

from hybrid.quant.ggml.families.mistral3 import Mistral3Hparams

from ..layers.query_scale import QueryScale
from .llama import Llama


class Mistral3(Llama):
    """Ministral 3; Mistral Small 3.1 and 3.2, whose files have no temperature."""

    name = "mistral3"
    hparams = Mistral3Hparams

    def query_scale(self, h: Any) -> QueryScale | None:
        return QueryScale(h.temperature, h.original_ctx) if h.temperature else None
