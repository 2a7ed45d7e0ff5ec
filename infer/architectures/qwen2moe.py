"""Qwen2-MoE: Qwen2 with experts beside a shared one, which every token weighs. arXiv:2407.10671"""

from dataclasses import dataclass
from typing import Any

from ..layers.base import Layer, Sum
from ..layers.feed_forward import GatedFeedForward, MixtureOfExperts
from ..loading.hparams import key
from ..loading.weights import Weights
from .llama import LlamaHparams
from .qwen2 import Qwen2


@dataclass(frozen=True)
class Qwen2MoeHparams(LlamaHparams):
    """n_ff_expert, n_ff_shared: widths of an expert and of the shared one, by default n_ff / n_expert_used and n_ff;
    weights_norm: the weights of those used are made to add up to 1."""

    n_expert: int = key("expert_count", minimum=1)
    n_expert_used: int = key("expert_used_count", minimum=1)
    n_ff_expert: int = key("expert_feed_forward_length", 0)
    n_ff_shared: int = key("expert_shared_feed_forward_length", 0)
    weights_norm: bool = key("expert_weights_norm", False)


class Qwen2Moe(Qwen2):
    """Qwen1.5-MoE and Qwen2-MoE. All layers have experts in llama.cpp's files, in ours those with a router."""

    name = "qwen2moe"
    hparams = Qwen2MoeHparams

    def feed_forward(self, h: Any, i: int, w: Weights) -> Layer:
        if f"blk.{i}.ffn_gate_inp.weight" not in w:
            return super().feed_forward(h, i, w)
        n_ff = h.n_ff_expert or h.n_ff // h.n_expert_used
        experts = MixtureOfExperts(i, h.n_embd, n_ff, h.n_expert, h.n_expert_used, h.weights_norm)
        return Sum(experts, GatedFeedForward(i, h.n_embd, h.n_ff_shared or h.n_ff, "_shexp", weighted=True))
