"""ERNIE 4.5: Llama, also with experts beside shared ones, chosen by their scores plus a bias. Of Baidu."""

from dataclasses import dataclass
from typing import Any

from ..layers.base import Layer, Sum
from ..layers.feed_forward import GatedFeedForward, MixtureOfExperts
from ..loading.hparams import key
from ..loading.weights import Weights
from .llama import Llama, LlamaHparams


class Ernie45(Llama):
    """ERNIE 4.5, dense."""

    name = "ernie4_5"


@dataclass(frozen=True)
class Ernie45MoeHparams(LlamaHparams):
    """n_ff_expert, n_ff_shared: widths of an expert and of the shared ones together, 0: there are none."""

    n_expert: int = key("expert_count", minimum=1)
    n_expert_used: int = key("expert_used_count", minimum=1)
    n_ff_expert: int = key("expert_feed_forward_length", minimum=1)
    n_ff_shared: int = key("expert_shared_feed_forward_length", 0)


class Ernie45Moe(Ernie45):
    """ERNIE 4.5 with experts on the layers that have a router."""

    name = "ernie4_5-moe"
    hparams = Ernie45MoeHparams
    has_heads = True

    def feed_forward(self, h: Any, i: int, w: Weights) -> Layer:
        if f"blk.{i}.ffn_gate_inp.weight" not in w:
            return super().feed_forward(h, i, w)
        experts = MixtureOfExperts(i, h.n_embd, h.n_ff_expert, h.n_expert, h.n_expert_used, renormalize=True)
        return Sum(experts, GatedFeedForward(i, h.n_embd, h.n_ff_shared, "_shexp")) if h.n_ff_shared else experts
