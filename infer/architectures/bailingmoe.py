"""Ling 1: Llama with experts, some of them for every token. arXiv:2503.05139"""

from typing import Any, ClassVar

from hybrid.quant.ggml.families.dots1 import Dots1Hparams

from ..layers.base import Layer
from ..loading.weights import Weights
from .latent import feed_forward
from .llama import Llama


class BailingMoe(Llama):
    """Ling and Ring 1 and 1.5."""

    name = "bailingmoe"
    hparams: ClassVar[type[Any]] = Dots1Hparams

    def feed_forward(self, h: Any, i: int, w: Weights) -> Layer:
        return feed_forward(h, i, w)
