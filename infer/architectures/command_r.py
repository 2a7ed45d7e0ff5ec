"""Command R: attention parallel to the feed-forward part, layer norms without biases. Of Cohere."""

from collections.abc import Iterator
from typing import Any, ClassVar

from hybrid.quant.ggml.families.command_r import CommandRHparams
from hybrid.quant.ggml.families.llama import LlamaHparams

from ..layers.base import Sum
from ..loading.weights import Weights
from .base import Part
from .llama import Llama


class CommandR(Llama):
    """Command R and Aya."""

    name: ClassVar[str] = "command-r"
    hparams: ClassVar[type[LlamaHparams]] = CommandRHparams
    layer_norms = True
    norm_biases = False

    def block(self, h: Any, i: int, w: Weights) -> Iterator[Part]:
        (norm, attention), (_, feed_forward) = super().block(h, i, w)
        yield norm, Sum(attention, feed_forward)
