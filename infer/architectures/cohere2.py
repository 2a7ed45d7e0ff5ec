"""Cohere 2: attention parallel to the feed-forward part, layer norms without biases; windows and positions on three
layers of four. arXiv:2504.00698"""

from typing import Any

from hybrid.quant.ggml.families.cohere2 import Cohere2Hparams

from ..layers.attention import Rope
from ..loading.weights import Weights
from .command_r import CommandR


class Cohere2(CommandR):
    """Command R7B and Command A. Only layers with a window have positions."""

    name = "cohere2"
    hparams = Cohere2Hparams

    def window(self, h: Any, i: int) -> int:
        return h.window if h.local[i] else 0

    def rope(self, h: Any, i: int, w: Weights, n_rot: int) -> Rope | None:
        return super().rope(h, i, w, n_rot) if h.local[i] else None
