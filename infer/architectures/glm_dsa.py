"""GLM-5 to 5.3: DeepSeek-V3.2 whose layers share what an indexer chooses. arXiv:2602.15763"""

from typing import Any

from hybrid.quant.ggml.families.glm_dsa import GlmDsaHparams

from ..kernels.attention.rope import NORM
from ..loading.weights import Weights
from .deepseek32 import DeepSeek32


class GlmDsa(DeepSeek32):
    """GLM-5."""

    name = "glm-dsa"
    hparams = GlmDsaHparams
    index_style = NORM

    def source(self, h: Any, i: int, w: Weights) -> int:
        if h.full[i]:
            return -1
        before = [j for j in range(i) if h.full[j]]
        if not before:
            raise h.wrong(w.gguf, "full", f"a layer that chooses before layer {i}, which does not")
        return before[-1]
