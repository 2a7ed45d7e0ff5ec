"""Phi-MoE: Llama with layer norms, biases in attention and two experts weighed by a sparse mixer. arXiv:2404.14219"""

from typing import Any

from hybrid.quant.ggml.families.phimoe import PhiMoeHparams

from ..kernels.attention.rope import NEOX
from ..kernels.rows.moe import ChosenBy
from ..layers.base import Layer
from ..layers.feed_forward import MixtureOfExperts
from ..layers.router import Router
from ..loading.weights import Weights
from .llama import Llama


class PhiMoe(Llama):
    """Phi-3.5-MoE. Runs as the original model does, which llama.cpp does not: docs/gguf-extensions.md."""

    name = "phimoe"
    hparams = PhiMoeHparams
    style = NEOX
    layer_norms = True

    def feed_forward(self, h: Any, i: int, w: Weights) -> Layer:
        router = Router(h.n_expert, h.n_expert_used, chosen_by=ChosenBy.SPARSE_MIXER, jitter=h.jitter)
        return MixtureOfExperts(i, h.n_embd, h.n_ff, router)
