"""GLM-4.5: RoPE on half of every head, experts as in DeepSeek-V3 after the first layers. arXiv:2508.06471"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from hybrid.quant.ggml.families.glm4_moe import Glm4MoeHparams

from ..loading.weights import Weights
from .base import Part
from .dots1 import Dots1


class Glm4Moe(Dots1):
    """GLM-4.5, 4.6 and 4.7; queries and keys are normalized if the file has norms for them."""

    name = "glm4moe"
    hparams = Glm4MoeHparams
    has_heads = True
    norms = ("attn_norm.weight", "post_attention_norm.weight")

    def block(self, h: Any, i: int, w: Weights) -> Iterator[Part]:
        (norm, attention), feed_forward = super().block(h, i, w)
        normed = f"blk.{i}.attn_q_norm.weight" in w
        yield norm, attention if normed else replace(attention, norm=None)  # type: ignore[type-var]
        yield feed_forward
