"""Granite 3: attention with RoPE on every layer, and four factors. Of ibm-granite."""

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from hybrid.quant.ggml.families.granite import GraniteHparams

from ..kernels.attention.rope import NORM
from ..layers.attention import Attention
from ..layers.base import Layer, Sum
from ..layers.feed_forward import GatedFeedForward, MixtureOfExperts
from ..layers.router import Router
from ..loading.weights import Weights
from .base import Family, Part, head_size
from .rope import rope_of


class Granite(Family):
    """Granite 3, dense."""

    name = "granite"
    hparams: ClassVar[type[Any]] = GraniteHparams

    def picture_blocks(self, h: GraniteHparams) -> Sequence[int]:
        return sorted((i for i, k in enumerate(h.deepstack) if k > 0), key=lambda i: h.deepstack[i])

    def block(self, h: GraniteHparams, i: int, w: Weights) -> Iterator[Part]:
        yield "attn_norm.weight", attention(h, i, w)
        yield "ffn_norm.weight", feed_forward(h, i)


def attention(h: GraniteHparams, i: int, w: Weights) -> Layer:
    """Attention of layer i, with RoPE or without."""
    d_head = head_size(h, w)
    rope = rope_of(h, w, h.n_rot or d_head, NORM) if h.uses_rope else None
    return Attention(i, h.n_embd, h.n_head, h.n_head_kv[i], d_head, rope, h.attention_scale)


def feed_forward(h: GraniteHparams, i: int) -> Layer:
    """The feed-forward part: dense, or experts with or without a shared one."""
    if not h.n_expert:
        return GatedFeedForward(i, h.n_embd, h.n_ff)
    experts = MixtureOfExperts(i, h.n_embd, h.n_ff, Router(h.n_expert, h.n_expert_used, renormalize=True))
    return Sum(experts, GatedFeedForward(i, h.n_embd, h.n_ff_shared, "_shexp")) if h.n_ff_shared else experts
