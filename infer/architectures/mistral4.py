"""Mistral Small 4: DeepSeek-V3 with queries scaled by position, its experts by softmax. Of Mistral AI."""

from dataclasses import replace
from typing import Any

from hybrid.quant.ggml.families.mistral4 import Mistral4Hparams

from ..layers.base import Layer
from ..layers.query_scale import QueryScale
from ..loading.weights import Weights
from .deepseek2 import DeepSeek2


class Mistral4(DeepSeek2):
    """Mistral Small 4."""

    name = "mistral4"
    hparams = Mistral4Hparams

    def attention(self, h: Any, i: int, w: Weights) -> Layer:
        scale = QueryScale(h.temperature, h.period) if h.temperature else None
        return replace(super().attention(h, i, w), query_scale=scale)  # type: ignore[type-var]
