"""Kimi Linear: gated delta rule by channels, latent attention without positions, experts. arXiv:2510.26692"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ..layers.base import Layer
from ..layers.kimi_delta import KimiDelta
from ..loading.hparams import key
from ..loading.weights import Weights
from .base import Family, Part
from .experts import SIGMOID
from .latent import LatentHparams, feed_forward, latent_attention


@dataclass(frozen=True)
class KimiLinearHparams(LatentHparams):
    """A layer without heads of keys has the delta rule."""

    d_conv: int = key("ssm.conv_kernel", minimum=2)
    d_kda: int = key("kda.head_dim", minimum=1)
    n_kda: int = key("hybrid.kda.head_count", 0)  # 0: as many as of attention
    gating: int = key("expert_gating_func", SIGMOID)


class KimiLinear(Family):
    """Kimi Linear."""

    name = "kimi-linear"
    hparams = KimiLinearHparams

    def block(self, h: Any, i: int, w: Weights) -> Iterator[Part]:
        yield "attn_norm.weight", self.attention(h, i, w) if h.n_head_kv[i] else self.delta(h, i, w)
        yield "ffn_norm.weight", self.feed_forward(h, i, w)

    def delta(self, h: Any, i: int, w: Weights) -> Layer:
        """A layer with the delta rule."""
        return KimiDelta(i, h.n_embd, h.n_kda or h.n_head, h.d_kda, h.d_conv, h.eps)

    def attention(self, h: Any, i: int, w: Weights) -> Layer:
        """A layer with latent attention."""
        return latent_attention(h, i, w)

    def feed_forward(self, h: Any, i: int, w: Weights) -> Layer:
        """Of any layer."""
        return feed_forward(h, i, w)
