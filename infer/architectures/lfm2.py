"""LFM2: gated short convolutions, and attention on some layers. arXiv:2511.23404"""

from collections.abc import Iterator
from dataclasses import dataclass

from ..kernels.attention.rope import NEOX
from ..layers.attention import Attention
from ..layers.feed_forward import GatedFeedForward, MixtureOfExperts
from ..layers.short_conv import ShortConv
from ..loading.hparams import key
from ..loading.weights import Weights
from .base import AttentionHparams, Family, Part
from .rope import RopeHparams


@dataclass(frozen=True)
class Lfm2Hparams(RopeHparams, AttentionHparams):
    """A layer without heads of keys is a convolution over d_conv tokens."""

    n_ff: int = key("feed_forward_length", minimum=1)
    d_conv: int = key("shortconv.l_cache", minimum=2)


@dataclass(frozen=True)
class Lfm2MoeHparams(Lfm2Hparams):
    """The first n_dense layers have no experts; weights_scale: factor of what the others add up; weights_norm: the
    weights of those used are made to add up to 1."""

    n_dense: int = key("leading_dense_block_count", 0)
    n_expert: int = key("expert_count", minimum=1)
    n_expert_used: int = key("expert_used_count", minimum=1)
    n_ff_expert: int = key("expert_feed_forward_length", minimum=1)
    weights_norm: bool = key("expert_weights_norm", True)
    weights_scale: float = key("expert_weights_scale", 1.0)


class Lfm2(Family):
    """LFM2, dense."""

    name = "lfm2"
    hparams = Lfm2Hparams
    output_norm = "token_embd_norm.weight"  # llama.cpp calls it so

    def block(self, h: Lfm2Hparams, i: int, w: Weights) -> Iterator[Part]:
        if h.n_head_kv[i]:
            d_head = h.head_size(w)
            rope = h.rope(w, d_head, NEOX)
            yield "attn_norm.weight", Attention(i, h.n_embd, h.n_head, h.n_head_kv[i], d_head, rope, norm_eps=h.eps)
        else:
            yield "attn_norm.weight", ShortConv(i, h.n_embd, h.d_conv)
        if not isinstance(h, Lfm2MoeHparams) or i < h.n_dense:
            yield "ffn_norm.weight", GatedFeedForward(i, h.n_embd, h.n_ff)
        else:
            yield "ffn_norm.weight", MixtureOfExperts(
                i, h.n_embd, h.n_ff_expert, h.n_expert, h.n_expert_used, h.weights_norm, sigmoid=True,
                scale=h.weights_scale or 1.0,
            )  # fmt: skip


class Lfm2Moe(Lfm2):
    """LFM2 with experts, chosen by sigmoids."""

    name = "lfm2moe"
    hparams = Lfm2MoeHparams
