"""Laguna: softplus gates after attention, heads by the layer, experts as in DeepSeek-V3. Of Poolside."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from hybrid.quant.ggml.families.laguna import LagunaHparams

from ..layers.attention import Rope
from ..layers.base import Gate, Layer
from ..layers.feed_forward import GatedFeedForward
from ..loading.weights import Weights
from .base import Part
from .experts import routed
from .mellum import Mellum


class Laguna(Mellum):
    """Laguna. The rows of its gates' matrix tell whether gates are of heads or of values."""

    name = "laguna"
    hparams = LagunaHparams

    def n_head(self, h: Any, i: int) -> int:
        n_head: int = h.n_head[i]
        return n_head

    def rope(self, h: Any, i: int, w: Weights, n_rot: int) -> Rope | None:
        return super().rope(h, i, w, h.n_rot_local or n_rot if self.window(h, i) else n_rot)

    def block(self, h: Any, i: int, w: Weights) -> Iterator[Part]:
        (norm, attention), feed_forward = super().block(h, i, w)
        of_heads = w.gguf.info(f"blk.{i}.attn_gate.weight").shape[0] == h.n_head[i]
        gate = Gate.HEADS if of_heads else Gate.APART
        yield norm, replace(attention, gate=gate, softplus=True)  # type: ignore[type-var]
        yield feed_forward

    def feed_forward(self, h: Any, i: int, w: Weights) -> Layer:
        if i < h.n_dense:
            return GatedFeedForward(i, h.n_embd, h.n_ff)
        return routed(h, i, w, n_ff_shared=h.n_ff_shared)
