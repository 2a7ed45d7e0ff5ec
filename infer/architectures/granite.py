"""Granite 3: attention with RoPE on every layer, and four factors. Of ibm-granite."""

from collections.abc import Iterator
from dataclasses import dataclass

from ..kernels.attention.rope import NORM
from ..layers.attention import Attention
from ..layers.base import Layer, Sum
from ..layers.feed_forward import GatedFeedForward, MixtureOfExperts
from ..loading.hparams import Scales, key
from ..loading.weights import Weights
from .base import AttentionHparams, Family, Part
from .rope import RopeHparams


@dataclass(frozen=True)
class GraniteHparams(RopeHparams, AttentionHparams):
    """n_expert 0: dense; n_ff_shared: width of an expert that every token uses, 0: no such expert."""

    n_ff: int = key("feed_forward_length", minimum=1)
    n_expert: int = key("expert_count", 0)
    n_expert_used: int = key("expert_used_count", 0)
    n_ff_shared: int = key("expert_shared_feed_forward_length", 0)
    # of these, 0 stands for "none", as in llama.cpp
    embedding_scale: float = key("embedding_scale", 0.0)
    residual_scale: float = key("residual_scale", 0.0)
    logit_scale: float = key("logit_scale", 0.0)
    attention_scale: float = key("attention.scale", 0.0)
    uses_rope: bool = key("rope.scaling.finetuned", True)  # llama.cpp took a key that was there
    n_rot: int = key("rope.dimension_count", 0)

    @property
    def scales(self) -> Scales:
        return Scales(self.embedding_scale or 1.0, self.residual_scale or 1.0, self.logit_scale or 1.0)


class Granite(Family):
    """Granite 3, dense."""

    name = "granite"
    hparams = GraniteHparams

    def block(self, h: GraniteHparams, i: int, w: Weights) -> Iterator[Part]:
        yield "attn_norm.weight", attention(h, i, w)
        yield "ffn_norm.weight", feed_forward(h, i)


def attention(h: GraniteHparams, i: int, w: Weights) -> Layer:
    """Attention of layer i, with RoPE or without positions."""
    d_head = h.head_size(w)
    rope = h.rope(w, h.n_rot or d_head, NORM) if h.uses_rope else None
    return Attention(i, h.n_embd, h.n_head, h.n_head_kv[i], d_head, rope, h.attention_scale)


def feed_forward(h: GraniteHparams, i: int) -> Layer:
    """Dense, or experts, with or without a shared one."""
    if not h.n_expert:
        return GatedFeedForward(i, h.n_embd, h.n_ff)
    experts = MixtureOfExperts(i, h.n_embd, h.n_ff, h.n_expert, h.n_expert_used, renormalize=True)
    return Sum(experts, GatedFeedForward(i, h.n_embd, h.n_ff_shared, "_shexp")) if h.n_ff_shared else experts
