"""ERNIE 4.5: Llama, also with shared experts and experts chosen by their scores plus a bias. Of Baidu."""

from typing import Any

from hybrid.quant.ggml.families.ernie4_5 import Ernie45MoeHparams

from ..layers.base import Layer, Sum
from ..layers.feed_forward import GatedFeedForward, MixtureOfExperts
from ..layers.router import Router
from ..loading.weights import Weights
from .llama import Llama


class Ernie45(Llama):
    """ERNIE 4.5, dense."""

    name = "ernie4_5"


class Ernie45Moe(Ernie45):
    """ERNIE 4.5 with experts on the layers that have a router."""

    name = "ernie4_5-moe"
    hparams = Ernie45MoeHparams
    has_heads = True

    def feed_forward(self, h: Any, i: int, w: Weights) -> Layer:
        if f"blk.{i}.ffn_gate_inp.weight" not in w:
            return super().feed_forward(h, i, w)
        experts = MixtureOfExperts(i, h.n_embd, h.n_ff_expert, Router(h.n_expert, h.n_expert_used, renormalize=True))
        return Sum(experts, GatedFeedForward(i, h.n_embd, h.n_ff_shared, "_shexp")) if h.n_ff_shared else experts
