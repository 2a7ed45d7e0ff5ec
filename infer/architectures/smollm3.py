"""SmolLM3: Llama without positions on some layers, usually every fourth. Of HuggingFaceTB."""

from typing import Any

from hybrid.quant.ggml.families.smollm3 import SmolLM3Hparams

from ..layers.attention import Rope
from ..loading.weights import Weights
from .llama import Llama


class SmolLM3(Llama):
    """SmolLM3. Rows of queries and keys are stored in RoPE's order on all layers."""

    name = "smollm3"
    hparams = SmolLM3Hparams

    def rope(self, h: Any, i: int, w: Weights, n_rot: int) -> Rope | None:
        return super().rope(h, i, w, n_rot) if h.turned[i] else None
