"""Qwen2-MoE: Qwen2 with experts and a shared one, weighted for each token. arXiv:2407.10671"""

from typing import Any

from hybrid.quant.ggml.families.qwen2moe import Qwen2MoeHparams

from ..layers.base import Layer, Sum
from ..layers.feed_forward import GatedFeedForward, MixtureOfExperts
from ..layers.router import Router
from ..loading.weights import Weights
from .qwen2 import Qwen2


class Qwen2Moe(Qwen2):
    """Qwen1.5-MoE and Qwen2-MoE. Layers with a router have experts; in llama.cpp's files all layers have one."""

    name = "qwen2moe"
    hparams = Qwen2MoeHparams

    def feed_forward(self, h: Any, i: int, w: Weights) -> Layer:
        if f"blk.{i}.ffn_gate_inp.weight" not in w:
            return super().feed_forward(h, i, w)
        n_ff = h.n_ff_expert or h.n_ff // h.n_expert_used
        experts = MixtureOfExperts(i, h.n_embd, n_ff, Router(h.n_expert, h.n_expert_used, h.weights_norm))
        return Sum(experts, GatedFeedForward(i, h.n_embd, h.n_ff_shared or h.n_ff, "_shexp", weighted=True))
