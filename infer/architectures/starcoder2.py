"""StarCoder2 (arXiv:2402.19173) and Phi-2: layer norms with biases, no gates, RoPE."""

from collections.abc import Iterator
from typing import Any, ClassVar

from hybrid.quant.ggml.families.starcoder2 import StarCoder2Hparams

from ..kernels.attention.rope import NEOX
from ..kernels.rows.gelu import gelu_tanh
from ..layers.attention import Attention
from ..layers.base import Sum
from ..layers.feed_forward import FeedForward
from ..loading.weights import Weights
from .base import Family, Part, head_size
from .rope import rope_of


class StarCoder2(Family):
    """StarCoder2: RoPE instead of learned positions."""

    name = "starcoder2"
    hparams: ClassVar[type[Any]] = StarCoder2Hparams
    layer_norms = True

    def block(self, h: StarCoder2Hparams, i: int, w: Weights) -> Iterator[Part]:
        attention, feed_forward = self.parts(h, i, w)
        yield "attn_norm.weight", attention
        yield "ffn_norm.weight", feed_forward

    def parts(self, h: StarCoder2Hparams, i: int, w: Weights) -> tuple[Attention, FeedForward]:
        """Attention and the feed-forward part of block i."""
        d_head = head_size(h, w)
        rope = rope_of(h, w, h.n_rot or d_head, NEOX)
        attention = Attention(i, h.n_embd, h.n_head, h.n_head_kv[i], d_head, rope, window=h.windows[i])
        return attention, FeedForward(i, h.n_embd, h.n_ff, act=gelu_tanh)


class Phi2(StarCoder2):
    """Phi-2: attention and the feed-forward part read the same rows."""

    name = "phi2"

    def block(self, h: StarCoder2Hparams, i: int, w: Weights) -> Iterator[Part]:
        yield "attn_norm.weight", Sum(*self.parts(h, i, w))
