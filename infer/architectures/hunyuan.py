"""Hunyuan: Llama with norms on queries and keys after RoPE, also with experts and a shared one. arXiv:2411.02265"""

from typing import Any, ClassVar

from hybrid.quant.ggml.families.hunyuan import HunyuanMoeHparams

from ..kernels.attention.rope import NEOX
from ..layers.base import Layer, Sum
from ..layers.feed_forward import GatedFeedForward, MixtureOfExperts
from ..layers.head_norm import NormWeights
from ..layers.router import Router
from ..loading.weights import Weights
from .llama import Llama


class Hunyuan(Llama):
    """Hunyuan, dense."""

    name: ClassVar[str] = "hunyuan-dense"
    style = NEOX
    normed = NormWeights.SHARED
    norm_after_rope = True


class HunyuanMoe(Hunyuan):
    """Hunyuan with experts on every layer."""

    name = "hunyuan-moe"
    hparams = HunyuanMoeHparams

    def feed_forward(self, h: Any, i: int, w: Weights) -> Layer:
        experts = MixtureOfExperts(i, h.n_embd, h.n_ff, Router(h.n_expert, h.n_expert_used, renormalize=True))
        return Sum(experts, GatedFeedForward(i, h.n_embd, h.n_ff_shared or h.n_ff, "_shexp"))
