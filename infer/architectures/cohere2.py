"""Cohere 2: attention beside the feed-forward part, layer norms without biases; windows and positions on three layers
of four. arXiv:2504.00698"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ..layers import Rope, Sum
from ..loading.hparams import Scales, key
from ..loading.weights import Weights
from .base import Part
from .llama import Llama, LlamaHparams


@dataclass(frozen=True)
class Cohere2Hparams(LlamaHparams):
    """Logits are times logit_scale, 0 stands for 1; a token of a `local` layer sees `window` tokens, 0: all."""

    eps: float = key("attention.layer_norm_epsilon")
    logit_scale: float = key("logit_scale")
    window: int = key("attention.sliding_window")
    local: tuple[bool, ...] = key("attention.sliding_window_pattern", 4, pattern=True)

    @property
    def scales(self) -> Scales:
        return Scales(logits=1 / self.logit_scale if self.logit_scale else 1.0)


class Cohere2(Llama):
    """Command R7B and Command A. Only layers with a window have positions."""

    name = "cohere2"
    hparams = Cohere2Hparams
    layer_norms = True
    norm_biases = False

    def block(self, h: Any, i: int, w: Weights) -> Iterator[Part]:
        (norm, attention), (_, feed_forward) = super().block(h, i, w)
        yield norm, Sum(attention, feed_forward)

    def window(self, h: Any, i: int) -> int:
        return h.window if h.local[i] else 0

    def rope(self, h: Any, i: int, w: Weights, n_rot: int) -> Rope | None:
        return super().rope(h, i, w, n_rot) if h.local[i] else None
