"""StarCoder2 (arXiv:2402.19173) and Phi-2: layer norms with biases, no gates, RoPE."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from ..kernels.attention.rope import NEOX
from ..kernels.rows.gelu import gelu_tanh
from ..layers.attention import Attention
from ..layers.base import Sum
from ..layers.feed_forward import FeedForward
from ..loading.hparams import key
from ..loading.weights import Weights
from .base import AttentionHparams, Family, Part
from .rope import RopeHparams


@dataclass(frozen=True)
class StarCoder2Hparams(RopeHparams, AttentionHparams):
    """n_rot: values of a head that RoPE turns, 0: all; windows: tokens that a token of a layer sees, 0: all."""

    eps: float = key("attention.layer_norm_epsilon")
    n_ff: int = key("feed_forward_length", minimum=1)
    n_rot: int = key("rope.dimension_count", 0)
    windows: tuple[int, ...] = key("hybrid.attention.sliding_window", 0, per_layer=True)


class StarCoder2(Family):
    """StarCoder2: RoPE in place of learned positions."""

    name = "starcoder2"
    hparams: ClassVar[type[Any]] = StarCoder2Hparams
    layer_norms = True

    def block(self, h: StarCoder2Hparams, i: int, w: Weights) -> Iterator[Part]:
        attention, feed_forward = self.parts(h, i, w)
        yield "attn_norm.weight", attention
        yield "ffn_norm.weight", feed_forward

    def parts(self, h: StarCoder2Hparams, i: int, w: Weights) -> tuple[Attention, FeedForward]:
        """Attention and the feed-forward part of block i."""
        d_head = h.head_size(w)
        rope = h.rope(w, h.n_rot or d_head, NEOX)
        attention = Attention(i, h.n_embd, h.n_head, h.n_head_kv[i], d_head, rope, window=h.windows[i])
        return attention, FeedForward(i, h.n_embd, h.n_ff, act=gelu_tanh)


class Phi2(StarCoder2):
    """Attention and the feed-forward part read the same rows."""

    name = "phi2"

    def block(self, h: StarCoder2Hparams, i: int, w: Weights) -> Iterator[Part]:
        yield "attn_norm.weight", Sum(*self.parts(h, i, w))
