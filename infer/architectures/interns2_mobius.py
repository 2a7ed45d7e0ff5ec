"""Intern-S2-Mobius (text): Qwen3.5 whose layers share a few banks of experts in turns. Of Shanghai AI Laboratory."""

from hybrid.quant.ggml.families.interns2_mobius import MobiusHparams

from ..layers.base import Layer
from ..loading.weights import Weights
from .qwen3next import shared_experts
from .qwen35 import Qwen35


class Mobius(Qwen35):
    """Intern-S2-Mobius."""

    name = "interns2-mobius"
    hparams = MobiusHparams
    has_heads = False

    def feed_forward(self, h: MobiusHparams, i: int, w: Weights) -> Layer:
        return shared_experts(h, i, h.n_ff_expert, h.n_ff_shared, bank=i % h.n_bank)
