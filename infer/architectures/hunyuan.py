"""Hunyuan: Llama with norms on queries and keys behind RoPE, also with experts beside a shared one. arXiv:2411.02265"""

from dataclasses import dataclass
from typing import Any, ClassVar

from ..kernels.attention.rope import NEOX
from ..layers.base import Layer, Sum
from ..layers.feed_forward import GatedFeedForward, MixtureOfExperts
from ..loading.hparams import key
from ..loading.weights import Weights
from .llama import Llama, LlamaHparams


class Hunyuan(Llama):
    """Hunyuan, dense."""

    name: ClassVar[str] = "hunyuan-dense"
    style = NEOX
    normed = "heads"
    norm_last = True


@dataclass(frozen=True)
class HunyuanMoeHparams(LlamaHparams):
    """n_ff is the width of an expert, n_ff_shared that of the shared one, 0: the same."""

    n_expert: int = key("expert_count", minimum=1)
    n_expert_used: int = key("expert_used_count", minimum=1)
    n_ff_shared: int = key("expert_shared_feed_forward_length", 0)


class HunyuanMoe(Hunyuan):
    """Hunyuan with experts on every layer."""

    name = "hunyuan-moe"
    hparams = HunyuanMoeHparams

    def feed_forward(self, h: Any, i: int, w: Weights) -> Layer:
        experts = MixtureOfExperts(i, h.n_embd, h.n_ff, h.n_expert, h.n_expert_used, renormalize=True)
        return Sum(experts, GatedFeedForward(i, h.n_embd, h.n_ff_shared or h.n_ff, "_shexp"))
