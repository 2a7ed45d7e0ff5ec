"""Ling 2.0: GLM-4.5 with queries, keys and values in one matrix; on most layers of its linear models lightning
attention with RoPE. arXiv:2510.22115, arXiv:2510.19338"""

from collections.abc import Iterator
from typing import Any, ClassVar

from hybrid.quant.ggml.families.bailingmoe2 import BailingLinearHparams
from hybrid.quant.ggml.families.glm4_moe import Glm4MoeHparams

from ..layers.base import Layer
from ..layers.head_norm import HeadNorm
from ..layers.lightning import RotaryLightning
from ..loading.weights import Weights
from .base import Part, head_size
from .dots1 import Dots1
from .latent import feed_forward


class BailingMoe2(Dots1):
    """Ling and Ring 2.0."""

    name = "bailingmoe2"
    hparams: ClassVar[type[Any]] = Glm4MoeHparams
    has_heads = True
    fused = True

    def feed_forward(self, h: Any, i: int, w: Weights) -> Layer:
        return feed_forward(h, i, w)


class BailingLinear(BailingMoe2):
    """Their linear models."""

    name = "bailingmoe-linear"
    hparams = BailingLinearHparams

    def block(self, h: Any, i: int, w: Weights) -> Iterator[Part]:
        (name, attention), after = super().block(h, i, w)
        if not h.n_head_kv[i]:
            d_head = head_size(h, w, h.d_head)
            rope, norm = self.rope(h, i, w, h.n_rot or d_head), HeadNorm(h.eps)
            sizes = i, h.n_embd, h.n_head, d_head
            attention = RotaryLightning(*sizes, rope, norm, h.n_norm_group, h.eps, fused=True)
        yield name, attention
        yield after
