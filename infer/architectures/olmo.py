"""OLMoE and OLMo 2: norms on the whole of queries and keys; norms behind the parts of OLMo 2. arXiv:2409.02060"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from ..kernels.attention.rope import NEOX
from ..layers.attention import Rope
from ..layers.base import Layer, PostNorm
from ..layers.feed_forward import MixtureOfExperts
from ..loading.hparams import key
from ..loading.weights import Weights
from .base import Part
from .llama import Llama, LlamaHparams


@dataclass(frozen=True)
class Olmo2Hparams(LlamaHparams):
    """OLMo 3 in llama.cpp's files: `local` layers have a window, and RoPE unscaled, with another base (0: the same)."""

    window: int = key("attention.sliding_window", 0)
    local: tuple[bool, ...] = key("attention.sliding_window_pattern", 4, pattern=True)
    freq_base_local: float = key("rope.freq_base_swa", 0.0)


class Olmo2(Llama):
    """OLMo 2 (arXiv:2501.00656): norms behind the parts in place of those in front. llama.cpp stores OLMo 3 as one."""

    name = "olmo2"
    hparams = Olmo2Hparams
    style = NEOX
    normed: ClassVar[Literal["", "heads", "all"]] = "all"

    def window(self, h: Any, i: int) -> int:
        return h.window if h.local[i] else 0

    def rope(self, h: Any, i: int, w: Weights, n_rot: int) -> Rope | None:
        whole = super().rope(h, i, w, n_rot)
        return Rope(n_rot, h.freq_base_local or h.freq_base, self.style) if self.window(h, i) else whole

    def block(self, h: Any, i: int, w: Weights) -> Iterator[Part]:
        for norm, (_, layer) in zip(("post_attention_norm", "post_ffw_norm"), super().block(h, i, w), strict=True):
            yield "", PostNorm(layer, f"blk.{i}.{norm}.weight", h.n_embd, h.eps)


@dataclass(frozen=True)
class OlmoeHparams(LlamaHparams):
    """n_ff is the width of an expert; weights_norm: the weights of those used are made to add up to 1; clip: limit of
    queries, keys and values, 0: none."""

    n_expert: int = key("expert_count", minimum=1)
    n_expert_used: int = key("expert_used_count", minimum=1)
    weights_norm: bool = key("expert_weights_norm", False)
    clip: float = key("attention.clamp_kqv", 0.0)


class Olmoe(Llama):
    """OLMoE: Llama with experts on every layer."""

    name = "olmoe"
    hparams = OlmoeHparams
    style = NEOX
    normed = "all"

    def block(self, h: Any, i: int, w: Weights) -> Iterator[Part]:
        (norm, attention), feed_forward = super().block(h, i, w)
        yield norm, replace(attention, clip=h.clip)  # type: ignore[type-var]
        yield feed_forward

    def feed_forward(self, h: Any, i: int, w: Weights) -> Layer:
        return MixtureOfExperts(i, h.n_embd, h.n_ff, h.n_expert, h.n_expert_used, h.weights_norm)
