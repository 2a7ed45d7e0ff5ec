"""Qwen2 and Qwen3: Llama with biases, then with norms on queries and keys, also with experts. arXiv:2505.09388"""

from dataclasses import dataclass
from typing import Any

from ..kernels.attention.rope import NEOX
from ..layers.base import Layer
from ..layers.feed_forward import MixtureOfExperts
from ..loading.hparams import key
from ..loading.weights import Weights
from .llama import Llama, LlamaHparams


class Qwen2(Llama):
    """Qwen2 and Qwen2.5 (arXiv:2407.10671); biases are used where the file has them."""

    name = "qwen2"
    style = NEOX


class Qwen3(Qwen2):
    """Qwen3, dense."""

    name = "qwen3"
    normed = "heads"


@dataclass(frozen=True)
class Qwen3MoeHparams(LlamaHparams):
    """n_ff_expert: width of an expert; weights_norm: the weights of those used are made to add up to 1."""

    n_expert: int = key("expert_count", minimum=1)
    n_expert_used: int = key("expert_used_count", minimum=1)
    n_ff_expert: int = key("expert_feed_forward_length", minimum=1)
    weights_norm: bool = key("expert_weights_norm", True)


class Qwen3Moe(Qwen3):
    """Qwen3 with experts on the layers that have a router, which in llama.cpp's files all have."""

    name = "qwen3moe"
    hparams = Qwen3MoeHparams

    def feed_forward(self, h: Any, i: int, w: Weights) -> Layer:
        if f"blk.{i}.ffn_gate_inp.weight" not in w:
            return super().feed_forward(h, i, w)
        return MixtureOfExperts(i, h.n_embd, h.n_ff_expert, h.n_expert, h.n_expert_used, h.weights_norm)
