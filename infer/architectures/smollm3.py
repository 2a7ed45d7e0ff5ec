"""SmolLM3: Llama without positions on some layers, usually every fourth. Of HuggingFaceTB."""

from dataclasses import dataclass
from typing import Any

from ..layers.attention import Rope
from ..loading.hparams import key
from ..loading.weights import Weights
from .llama import Llama, LlamaHparams


@dataclass(frozen=True)
class SmolLM3Hparams(LlamaHparams):
    """turned: layers with RoPE. The key is ours; llama.cpp knows one order of layers."""

    turned: tuple[bool, ...] = key("hybrid.rope.layer_pattern", 4, pattern=True)


class SmolLM3(Llama):
    """SmolLM3, whose rows of queries and keys are stored for RoPE on all layers."""

    name = "smollm3"
    hparams = SmolLM3Hparams

    def rope(self, h: Any, i: int, w: Weights, n_rot: int) -> Rope | None:
        return super().rope(h, i, w, n_rot) if h.turned[i] else None
