"""MiniCPM3: MiniCPM with latent attention."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar

from hybrid.quant.ggml.families.minicpm3 import MiniCpm3Hparams

from ..kernels.attention.rope import NEOX
from ..layers.feed_forward import GatedFeedForward
from ..loading.weights import Weights
from .base import Family, Part, head_size
from .latent import latent_attention
from .rope import rope_of


class MiniCpm3(Family):
    """MiniCPM3."""

    name = "minicpm3"
    hparams: ClassVar[type[Any]] = MiniCpm3Hparams

    def block(self, h: Any, i: int, w: Weights) -> Iterator[Part]:
        attention = latent_attention(h, i, w, rope_of(h, w, h.n_rot, NEOX))
        yield "attn_norm.weight", replace(attention, d_value=head_size(h, w, h.d_value))
        yield "ffn_norm.weight", GatedFeedForward(i, h.n_embd, h.n_ff)
