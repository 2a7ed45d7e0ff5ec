"""DeepSeekMoE: Llama with experts after the first layers, beside shared ones. arXiv:2401.06066"""

from typing import Any

from hybrid.quant.ggml.families.deepseek import DeepSeekHparams

from ..layers.base import Layer
from ..loading.weights import Weights
from .experts import routed
from .llama import Llama


class DeepSeek(Llama):
    """DeepSeek-MoE-16B, and the text models of DeepSeek-OCR and Aria."""

    name = "deepseek"
    hparams = DeepSeekHparams

    def feed_forward(self, h: Any, i: int, w: Weights) -> Layer:
        return super().feed_forward(h, i, w) if i < h.n_dense else routed(h, i, w)
