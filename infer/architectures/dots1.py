"""dots.llm1: Qwen3 with experts as in DeepSeek-V3 behind the first layers. arXiv:2506.05767"""

from dataclasses import dataclass
from typing import Any, ClassVar

from ..layers import GatedFeedForward, Layer, MixtureOfExperts, Sum
from ..loading.hparams import key
from ..loading.weights import Weights
from .llama import LlamaHparams
from .qwen2 import Qwen3

SIGMOID = 2  # of expert_gating_func


@dataclass(frozen=True)
class Dots1Hparams(LlamaHparams):
    """n_dense: first layers without experts; n_shared experts, as wide together as so many, are for every token."""

    n_dense: int = key("leading_dense_block_count", 0)
    n_expert: int = key("expert_count", minimum=1)
    n_expert_used: int = key("expert_used_count", minimum=1)
    n_ff_expert: int = key("expert_feed_forward_length", minimum=1)
    n_shared: int = key("expert_shared_count")
    weights_norm: bool = key("expert_weights_norm", False)
    weights_scale: float = key("expert_weights_scale", 1.0)
    gating: int = key("expert_gating_func", 1)
    n_group: int = key("expert_group_count", 1)
    n_group_used: int = key("expert_group_used_count", 1)


class Dots1(Qwen3):
    """dots.llm1, and what GLM-4.5 shares with it."""

    name = "dots1"
    hparams: ClassVar[type[Any]] = Dots1Hparams

    def feed_forward(self, h: Any, i: int, w: Weights) -> Layer:
        if i < h.n_dense:
            return super().feed_forward(h, i, w)
        experts = MixtureOfExperts(
            i, h.n_embd, h.n_ff_expert, h.n_expert, h.n_expert_used, h.weights_norm, sigmoid=h.gating == SIGMOID,
            scale=h.weights_scale or 1.0, n_group=max(1, h.n_group), n_group_used=h.n_group_used,
        )  # fmt: skip
        if not h.n_shared:
            return experts
        return Sum(experts, GatedFeedForward(i, h.n_embd, h.n_shared * h.n_ff_expert, "_shexp"))
