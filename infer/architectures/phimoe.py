"""Phi-MoE: Llama with layer norms, biases of attention and two experts that a sparse mixer weighs. arXiv:2404.14219"""

from dataclasses import dataclass
from typing import Any

from ..kernels.attention.rope import NEOX
from ..layers.base import Layer
from ..layers.feed_forward import MixtureOfExperts
from ..loading.hparams import key
from ..loading.weights import Weights
from .llama import Llama, LlamaHparams


@dataclass(frozen=True)
class PhiMoeHparams(LlamaHparams):
    """jitter: of the sparse mixer. The key is ours; nobody else's files have another one than the usual."""

    n_expert: int = key("expert_count", minimum=1)
    n_expert_used: int = key("expert_used_count", minimum=1)
    jitter: float = key("hybrid.expert_router_jitter", 0.01)


class PhiMoe(Llama):
    """Phi-3.5-MoE. Files of llama.cpp's converter run as the model does, not as there: docs/gguf-extensions.md."""

    name = "phimoe"
    hparams = PhiMoeHparams
    style = NEOX
    layer_norms = True

    def feed_forward(self, h: Any, i: int, w: Weights) -> Layer:
        return MixtureOfExperts(i, h.n_embd, h.n_ff, h.n_expert, h.n_expert_used, jitter=h.jitter)
