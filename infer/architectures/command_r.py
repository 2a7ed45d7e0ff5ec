"""Command R: attention beside the feed-forward part, layer norms without biases. Of Cohere."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from ..layers.base import Sum
from ..loading.hparams import Scales, key
from ..loading.weights import Weights
from .base import Part
from .llama import Llama, LlamaHparams


@dataclass(frozen=True)
class CommandRHparams(LlamaHparams):
    """Logits are times logit_scale, 0 stands for 1."""

    eps: float = key("attention.layer_norm_epsilon")
    logit_scale: float = key("logit_scale", 0.0)

    @property
    def scales(self) -> Scales:
        return Scales(logits=1 / self.logit_scale if self.logit_scale else 1.0)


class CommandR(Llama):
    """Command R and Aya."""

    name: ClassVar[str] = "command-r"
    hparams: ClassVar[type[LlamaHparams]] = CommandRHparams
    layer_norms = True
    norm_biases = False

    def block(self, h: Any, i: int, w: Weights) -> Iterator[Part]:
        (norm, attention), (_, feed_forward) = super().block(h, i, w)
        yield norm, Sum(attention, feed_forward)
