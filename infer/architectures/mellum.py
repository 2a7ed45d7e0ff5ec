"""Mellum 2: Qwen3 with experts, in which layers with a window have RoPE of their own. Of JetBrains."""

from typing import Any, ClassVar

from hybrid.quant.ggml.families.mellum import MellumHparams

from ..layers.attention import Rope
from ..loading.weights import Weights
from .qwen2 import Qwen3Moe


class Mellum(Qwen3Moe):
    """Mellum 2."""

    name = "mellum"
    hparams: ClassVar[type[Any]] = MellumHparams

    def window(self, h: Any, i: int) -> int:
        return h.window if h.local[i] else 0

    def rope(self, h: Any, i: int, w: Weights, n_rot: int) -> Rope | None:
        whole = super().rope(h, i, w, n_rot)
        return Rope(n_rot, h.freq_base_local or h.freq_base, self.style) if self.window(h, i) else whole
