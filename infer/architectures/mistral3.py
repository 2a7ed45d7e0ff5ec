"""Ministral 3: Llama with queries that grow with their position; also Mistral Small 3.1, without. arXiv:2601.08584"""

from dataclasses import dataclass
from typing import Any

from ..layers.query_scale import QueryScale
from ..loading.hparams import key
from .llama import Llama, LlamaHparams


@dataclass(frozen=True)
class Mistral3Hparams(LlamaHparams):
    """temperature: queries are times 1 + temperature * log(1 + number of whole original contexts before them)."""

    temperature: float = key("attention.temperature_scale", 0.0)


class Mistral3(Llama):
    """Ministral 3; Mistral Small 3.1 and 3.2 without a temperature."""

    name = "mistral3"
    hparams = Mistral3Hparams

    def query_scale(self, h: Any) -> QueryScale | None:
        return QueryScale(h.temperature, h.original_ctx) if h.temperature else None
