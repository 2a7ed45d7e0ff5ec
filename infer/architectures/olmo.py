"""OLMoE and OLMo 2: norms on the whole of queries and keys; norms behind the parts of OLMo 2. arXiv:2409.02060"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ..hparams import key
from ..kernels.rope import NEOX
from ..layers import Layer, MixtureOfExperts, PostNorm
from ..weights import Weights
from .base import Part
from .llama import Llama, LlamaHparams


class Olmo2(Llama):
    """OLMo 2 (arXiv:2501.00656): norms behind the parts in place of those in front."""

    name = "olmo2"
    style = NEOX
    normed = "all"

    def block(self, h: Any, i: int, w: Weights) -> Iterator[Part]:
        for norm, (_, layer) in zip(("post_attention_norm", "post_ffw_norm"), super().block(h, i, w), strict=True):
            yield "", PostNorm(layer, f"blk.{i}.{norm}.weight", h.n_embd, h.eps)


@dataclass(frozen=True)
class OlmoeHparams(LlamaHparams):
    """n_ff is the width of an expert."""

    n_expert: int = key("expert_count", minimum=1)
    n_expert_used: int = key("expert_used_count", minimum=1)


class Olmoe(Llama):
    """OLMoE: Llama with experts on every layer, whose weights are not made to add up to 1."""

    name = "olmoe"
    hparams = OlmoeHparams
    style = NEOX
    normed = "all"

    def feed_forward(self, h: Any, i: int) -> Layer:
        return MixtureOfExperts(i, h.n_embd, h.n_ff, h.n_expert, h.n_expert_used)
