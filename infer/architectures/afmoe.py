"""AFMoE: gated attention, windows and positions on three layers of four, norms around all parts, experts. Of Arcee."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from hybrid.quant.ggml.families.afmoe import AfmoeHparams

from ..layers.attention import Rope
from ..layers.base import Gate, PostNorm
from ..loading.weights import Weights
from .base import Part
from .dots1 import Dots1


class Afmoe(Dots1):
    """AFMoE (Trinity)."""

    name = "afmoe"
    hparams = AfmoeHparams

    def window(self, h: Any, i: int) -> int:
        return h.window if h.local[i] else 0

    def rope(self, h: Any, i: int, w: Weights, n_rot: int) -> Rope | None:
        return super().rope(h, i, w, n_rot) if h.local[i] else None

    def block(self, h: Any, i: int, w: Weights) -> Iterator[Part]:
        (norm, attention), (norm_2, feed_forward) = super().block(h, i, w)
        attention = replace(attention, gate=Gate.APART)  # type: ignore[type-var]
        yield norm, PostNorm(attention, f"blk.{i}.post_attention_norm.weight", h.n_embd, h.eps)
        yield norm_2, PostNorm(feed_forward, f"blk.{i}.post_ffw_norm.weight", h.n_embd, h.eps)
