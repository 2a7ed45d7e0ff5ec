"""dots.llm1: Qwen3 with experts as in DeepSeek-V3 behind the first layers. arXiv:2506.05767"""

from dataclasses import dataclass
from typing import Any, ClassVar

from ..layers.base import Layer
from ..loading.hparams import key
from ..loading.weights import Weights
from .experts import RoutedHparams, routed
from .llama import LlamaHparams
from .qwen2 import Qwen3


@dataclass(frozen=True)
class Dots1Hparams(LlamaHparams, RoutedHparams):
    """Weights of experts do not add up to 1 unless the file says so."""

    n_shared: int = key("expert_shared_count")
    weights_norm: bool = key("expert_weights_norm", False)


class Dots1(Qwen3):
    """dots.llm1, and what GLM-4.5 shares with it."""

    name = "dots1"
    hparams: ClassVar[type[Any]] = Dots1Hparams

    def feed_forward(self, h: Any, i: int, w: Weights) -> Layer:
        return super().feed_forward(h, i, w) if i < h.n_dense else routed(h, i, w)
