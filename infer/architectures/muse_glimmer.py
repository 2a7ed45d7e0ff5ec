"""Muse Glimmer (text): a norm of the embedding, windows on three layers of four, gates after attention. Of Meta."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from hybrid.quant.ggml.families.muse_glimmer import MuseGlimmerHparams

from ..layers.attention import Rope
from ..layers.base import Gate, PostNorm
from ..layers.head_norm import NormWeights
from ..loading.weights import Weights
from .base import Part
from .llama import Llama


class MuseGlimmer(Llama):
    """Muse Glimmer. The weights of queries' norm are all one number, the factor of queries."""

    name = "muse-glimmer"
    hparams = MuseGlimmerHparams
    normed = NormWeights.SHARED
    rms_of_embedding = True

    def window(self, h: Any, i: int) -> int:
        return h.window if h.local[i] else 0

    def rope(self, h: Any, i: int, w: Weights, n_rot: int) -> Rope | None:
        return super().rope(h, i, w, n_rot) if h.local[i] else None

    def block(self, h: Any, i: int, w: Weights) -> Iterator[Part]:
        (norm, attention), (ffn_norm, feed_forward) = super().block(h, i, w)
        attention = replace(attention, gate=Gate.APART)  # type: ignore[type-var]
        yield norm, PostNorm(attention, f"blk.{i}.post_attention_norm.weight", h.n_embd, h.post_eps)
        yield ffn_norm, PostNorm(feed_forward, f"blk.{i}.post_ffw_norm.weight", h.n_embd, h.post_eps)
