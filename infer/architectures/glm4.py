"""GLM 4: Llama with norms before and after both parts, RoPE on half of every head. arXiv:2406.12793"""

from collections.abc import Iterator
from typing import Any

from ..layers.base import Layer, PostNorm
from ..layers.feed_forward import GatedFeedForward
from ..loading.weights import Weights
from .base import Part
from .llama import Llama


class Glm4(Llama):
    """GLM-4-0414 and GLM-Z1, dense; gate and up are one matrix."""

    name = "glm4"

    def block(self, h: Any, i: int, w: Weights) -> Iterator[Part]:
        for behind, (norm, part) in zip(("attention", "ffw"), super().block(h, i, w), strict=True):
            yield norm, PostNorm(part, f"blk.{i}.post_{behind}_norm.weight", h.n_embd, h.eps)

    def feed_forward(self, h: Any, i: int, w: Weights) -> Layer:
        return GatedFeedForward(i, h.n_embd, h.n_ff, fused=True)
