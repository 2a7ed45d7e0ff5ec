"""OLMoE and OLMo 2: norms over all heads of queries and keys; in OLMo 2 norms after the parts. arXiv:2409.02060"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from hybrid.quant.ggml.families.olmo import Olmo2Hparams, OlmoeHparams

from ..kernels.attention.rope import NEOX
from ..layers.attention import Rope
from ..layers.base import Layer, PostNorm
from ..layers.feed_forward import MixtureOfExperts
from ..layers.head_norm import NormWeights
from ..layers.router import Router
from ..loading.weights import Weights
from .base import Part
from .llama import Llama


class Olmo2(Llama):
    """OLMo 2 (arXiv:2501.00656): norms after the parts instead of before. llama.cpp stores OLMo 3 as OLMo 2."""

    name = "olmo2"
    hparams = Olmo2Hparams
    style = NEOX
    normed = NormWeights.ALL_HEADS

    def window(self, h: Any, i: int) -> int:
        return h.window if h.local[i] else 0

    def rope(self, h: Any, i: int, w: Weights, n_rot: int) -> Rope | None:
        whole = super().rope(h, i, w, n_rot)
        return Rope(n_rot, h.freq_base_local or h.freq_base, self.style) if self.window(h, i) else whole

    def block(self, h: Any, i: int, w: Weights) -> Iterator[Part]:
        for norm, (_, layer) in zip(("post_attention_norm", "post_ffw_norm"), super().block(h, i, w), strict=True):
            yield "", PostNorm(layer, f"blk.{i}.{norm}.weight", h.n_embd, h.eps)


class Olmoe(Llama):
    """OLMoE: Llama with experts on every layer."""

    name = "olmoe"
    hparams = OlmoeHparams
    style = NEOX
    normed = NormWeights.ALL_HEADS

    def block(self, h: Any, i: int, w: Weights) -> Iterator[Part]:
        (norm, attention), feed_forward = super().block(h, i, w)
        yield norm, replace(attention, clip=h.clip)  # type: ignore[type-var]
        yield feed_forward

    def feed_forward(self, h: Any, i: int, w: Weights) -> Layer:
        return MixtureOfExperts(i, h.n_embd, h.n_ff, Router(h.n_expert, h.n_expert_used, h.weights_norm))


class FlexOlmo(Olmoe):
    """FlexOlmo: an OLMoE with the norms of OLMo 2. arXiv:2507.07024"""

    name = "flex-olmo"

    def block(self, h: Any, i: int, w: Weights) -> Iterator[Part]:
        for norm, (_, layer) in zip(("post_attention_norm", "post_ffw_norm"), super().block(h, i, w), strict=True):
            yield "", PostNorm(layer, f"blk.{i}.{norm}.weight", h.n_embd, h.eps)
