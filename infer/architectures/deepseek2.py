"""DeepSeek-V2 and V3: latent attention, RoPE on the part of a key that heads share, experts. arXiv:2405.04434"""

import math
from collections.abc import Iterator
from typing import Any, ClassVar

from hybrid.quant.ggml.families.deepseek2 import DeepSeek2Hparams

from ..kernels.attention.rope import NORM
from ..layers.attention import Rope
from ..layers.base import Layer
from ..loading.weights import Weights
from .base import Family, Part
from .latent import feed_forward, latent_attention
from .rope import rope_of


class DeepSeek2(Family):
    """DeepSeek-V2, V2-Lite and V3."""

    name = "deepseek2"
    hparams: ClassVar[type[Any]] = DeepSeek2Hparams
    has_heads = True

    def block(self, h: DeepSeek2Hparams, i: int, w: Weights) -> Iterator[Part]:
        yield "attn_norm.weight", self.attention(h, i, w)
        yield "ffn_norm.weight", feed_forward(h, i, w, by_two=h.group_best > 1)

    def attention(self, h: Any, i: int, w: Weights) -> Layer:
        rope, scale = rope_and_scale(h, w)
        return latent_attention(h, i, w, rope, scale=scale)


def rope_and_scale(h: DeepSeek2Hparams, w: Weights) -> tuple[Rope, float]:
    """RoPE, and the factor of scores. With YaRN, yarn_log_multiplier is a tenth of mscale_all_dim, which llama.cpp's
    converter writes so for this architecture and deepseek32, and also stands for mscale: scores grow with it, cos and
    sin do not."""
    rope, growth = rope_of(h, w, h.n_rot, NORM), 1.0
    if h.rope_type == "yarn" and h.factor > 1:
        grown = 1.0 if h.log_share else 0.1 * math.log(h.factor) + 1
        rope.magnitude = h.attn_factor * (h.magnitude or grown)
        growth = rope.magnitude * (h.log_share * math.log(h.factor) + 1)
    return rope, growth**2 / math.sqrt(h.d_key)
