"""K-EXAONE: windows and positions on three layers of four, experts as in DeepSeek-V3. arXiv:2601.01739"""

from typing import Any

from hybrid.quant.ggml.families.exaone_moe import ExaoneMoeHparams

from ..layers.attention import Rope
from ..loading.weights import Weights
from .dots1 import Dots1


class ExaoneMoe(Dots1):
    """K-EXAONE. In models with windows only layers with a window have positions."""

    name = "exaone-moe"
    hparams = ExaoneMoeHparams

    def window(self, h: Any, i: int) -> int:
        return h.window if h.local[i] else 0

    def rope(self, h: Any, i: int, w: Weights, n_rot: int) -> Rope | None:
        return None if h.window and not h.local[i] else super().rope(h, i, w, n_rot)
