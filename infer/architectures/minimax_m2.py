"""MiniMax-M2: norms over all heads of queries and of keys, experts as in DeepSeek-V3 on all layers. Of MiniMax."""

from typing import Any

from hybrid.quant.ggml.families.minimax_m2 import MiniMaxM2Hparams

from ..kernels.attention.rope import NEOX
from ..layers.base import Layer
from ..layers.head_norm import NormWeights
from ..loading.weights import Weights
from .experts import routed
from .llama import Llama


class MiniMaxM2(Llama):
    """MiniMax-M2 and M2.1."""

    name = "minimax-m2"
    hparams = MiniMaxM2Hparams
    style = NEOX
    normed = NormWeights.ALL_HEADS

    def feed_forward(self, h: Any, i: int, w: Weights) -> Layer:
        return routed(h, i, w)
