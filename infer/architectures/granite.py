"""Granite 3: attention with RoPE on every layer, and four factors. Of ibm-granite."""

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from hybrid.quant.ggml.families.granite import GraniteHparams

from ..kernels.attention.rope import NORM
from ..layers.attention import Attention
from ..layers.base import Layer, PostNorm, Sum
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
        yield "attn_norm.weight", _normed(h, w, attention(h, i, w), f"blk.{i}.post_attention_norm.weight")
        yield "ffn_norm.weight", _normed(h, w, feed_forward(h, i), f"blk.{i}.post_ffw_norm.weight")


def _normed(h: GraniteHparams, w: Weights, layer: Layer, norm: str) -> Layer:
    """The layer, with a norm of its result if the file has one, as in HyperCLOVA X."""
    return PostNorm(layer, norm, h.n_embd, h.eps) if norm in w else layer


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
