"""Cohere 2: attention beside the feed-forward part, layer norms without biases; windows and positions on three layers
of four. arXiv:2504.00698"""

from dataclasses import dataclass
from typing import Any

from ..layers.attention import Rope
from ..loading.hparams import key
from ..loading.weights import Weights
from .command_r import CommandR, CommandRHparams


@dataclass(frozen=True)
class Cohere2Hparams(CommandRHparams):
    """A token of a `local` layer sees `window` tokens, 0: all."""

    logit_scale: float = key("logit_scale")
    window: int = key("attention.sliding_window")
    local: tuple[bool, ...] = key("attention.sliding_window_pattern", 4, pattern=True)


class Cohere2(CommandR):
    """Command R7B and Command A. Only layers with a window have positions."""

    name = "cohere2"
    hparams = Cohere2Hparams

    def window(self, h: Any, i: int) -> int:
        return h.window if h.local[i] else 0

    def rope(self, h: Any, i: int, w: Weights, n_rot: int) -> Rope | None:
        return super().rope(h, i, w, n_rot) if h.local[i] else None
