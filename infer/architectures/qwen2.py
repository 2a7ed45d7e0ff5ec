"""Qwen2 and Qwen3: Llama with biases, then with norms on queries and keys, also with experts. arXiv:2505.09388"""

from collections.abc import Sequence
from typing import Any

from hybrid.quant.ggml.families.qwen2 import Qwen3MoeHparams, Qwen3VLHparams

from ..kernels.attention.rope import NEOX
from ..layers.attention import Rope
from ..layers.base import Layer
from ..layers.feed_forward import MixtureOfExperts
from ..layers.head_norm import NormWeights
from ..layers.router import Router
from ..loading.weights import Weights
from .llama import Llama
from .rope import rope_of, with_axes


class Qwen2(Llama):
    """Qwen2 and Qwen2.5 (arXiv:2407.10671); biases are used if the file has them."""

    name = "qwen2"
    style = NEOX


class Qwen3(Qwen2):
    """Qwen3, dense."""

    name = "qwen3"
    normed = NormWeights.SHARED


class Qwen2VL(Qwen2):
    """The text part of Qwen2-VL and Qwen2.5-VL: pictures have positions on three axes. arXiv:2502.13923"""

    name = "qwen2vl"

    def rope(self, h: Any, i: int, w: Weights, n_rot: int) -> Rope | None:
        return with_axes(rope_of(h, w, n_rot, self.style), w, interleaved=False)


class Qwen3VL(Qwen3):
    """The text part of Qwen3-VL: the same, with interleaved axes. arXiv:2511.21631"""

    name = "qwen3vl"
    hparams = Qwen3VLHparams

    def picture_blocks(self, h: Qwen3VLHparams) -> Sequence[int]:
        return range(1, h.n_deepstack + 1)

    def rope(self, h: Any, i: int, w: Weights, n_rot: int) -> Rope | None:
        return with_axes(rope_of(h, w, n_rot, self.style), w, interleaved=True)


class Qwen3Moe(Qwen3):
    """Qwen3 with experts on layers with a router; in llama.cpp's files all layers have one."""

    name = "qwen3moe"
    hparams = Qwen3MoeHparams

    def feed_forward(self, h: Any, i: int, w: Weights) -> Layer:
        if f"blk.{i}.ffn_gate_inp.weight" not in w:
            return super().feed_forward(h, i, w)
        return MixtureOfExperts(i, h.n_embd, h.n_ff_expert, Router(h.n_expert, h.n_expert_used, h.weights_norm))
