"""dots.llm1: Qwen3 with experts as in DeepSeek-V3 after the first layers. arXiv:2506.05767"""

from typing import Any, ClassVar

from hybrid.quant.ggml.families.dots1 import Dots1Hparams

from ..layers.base import Layer
from ..loading.weights import Weights
from .experts import routed
from .qwen2 import Qwen3


class Dots1(Qwen3):
    """dots.llm1, and the base of GLM-4.5."""

    name = "dots1"
    hparams: ClassVar[type[Any]] = Dots1Hparams

    def feed_forward(self, h: Any, i: int, w: Weights) -> Layer:
        return super().feed_forward(h, i, w) if i < h.n_dense else routed(h, i, w)
