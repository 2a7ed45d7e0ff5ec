"""EXAONE 4: norms after the parts, and on queries and keys; windows on three layers of four. arXiv:2507.11407"""

from typing import Any

from ..layers.attention import Rope
from ..layers.head_norm import NormWeights
from ..loading.weights import Weights
from .llama import Llama
from .olmo import Olmo2


class Exaone4(Olmo2):
    """EXAONE 4. In models with windows only layers with a window have positions."""

    name = "exaone4"
    normed = NormWeights.SHARED

    def rope(self, h: Any, i: int, w: Weights, n_rot: int) -> Rope | None:
        return None if h.window and not h.local[i] else Llama.rope(self, h, i, w, n_rot)
