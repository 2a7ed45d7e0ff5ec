"""Kimi Linear: gated delta rule by channels, latent attention without positions, experts. arXiv:2510.26692"""

from collections.abc import Iterator
from typing import Any, ClassVar

from hybrid.quant.ggml.families.kimi_linear import KimiLinearHparams

from ..layers.base import Layer
from ..layers.kimi_delta import KimiDelta
from ..loading.weights import Weights
from .base import Family, Part
from .latent import feed_forward, latent_attention


def kimi_delta(h: Any, i: int, **more: Any) -> KimiDelta:
    """The delta rule as layer i. more: fields of KimiDelta."""
    return KimiDelta(i, h.n_embd, h.n_kda or h.n_head, h.d_kda, h.d_conv, h.eps, **more)


class KimiLinear(Family):
    """Kimi Linear."""

    name = "kimi-linear"
    hparams: ClassVar[type[Any]] = KimiLinearHparams

    def block(self, h: Any, i: int, w: Weights) -> Iterator[Part]:
        yield "attn_norm.weight", self.attention(h, i, w) if h.n_head_kv[i] else self.delta(h, i, w)
        yield "ffn_norm.weight", self.feed_forward(h, i, w)

    def delta(self, h: Any, i: int, w: Weights) -> Layer:
        """Layer i, with the delta rule."""
        return kimi_delta(h, i)

    def attention(self, h: Any, i: int, w: Weights) -> Layer:
        """Layer i, with latent attention."""
        return latent_attention(h, i, w)

    def feed_forward(self, h: Any, i: int, w: Weights) -> Layer:
        """The feed-forward part of layer i."""
        return feed_forward(h, i, w)
