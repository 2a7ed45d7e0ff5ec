"""LFM2: gated short convolutions, and attention on some layers. arXiv:2511.23404"""

from collections.abc import Iterator
from typing import Any, ClassVar

from hybrid.quant.ggml.families.lfm2 import Lfm2Hparams, Lfm2MoeHparams

from ..kernels.attention.rope import NEOX
from ..kernels.rows.moe import Scoring
from ..layers.attention import Attention, EncoderAttention
from ..layers.feed_forward import GatedFeedForward, MixtureOfExperts
from ..layers.head_norm import HeadNorm
from ..layers.short_conv import CenteredShortConv, ShortConv
from ..loading.weights import Weights
from .base import EncoderFamily, Family, Part, head_size
from .experts import router_of
from .rope import rope_of


class Lfm2(Family):
    """LFM2, dense."""

    name = "lfm2"
    hparams: ClassVar[type[Any]] = Lfm2Hparams
    output_norm = "token_embd_norm.weight"  # llama.cpp's name

    def block(self, h: Lfm2Hparams, i: int, w: Weights) -> Iterator[Part]:
        if h.n_head_kv[i]:
            d_head = head_size(h, w)
            rope = rope_of(h, w, d_head, NEOX)
            yield (
                "attn_norm.weight",
                Attention(i, h.n_embd, h.n_head, h.n_head_kv[i], d_head, rope, norm=HeadNorm(h.eps)),
            )
        else:
            yield "attn_norm.weight", ShortConv(i, h.n_embd, h.d_conv)
        if not isinstance(h, Lfm2MoeHparams) or i < h.n_dense:
            yield "ffn_norm.weight", GatedFeedForward(i, h.n_embd, h.n_ff)
        else:
            router = router_of(h, scoring=Scoring.SIGMOID)
            yield "ffn_norm.weight", MixtureOfExperts(i, h.n_embd, h.n_ff_expert, router)


class Lfm2Bidirectional(EncoderFamily):
    """LFM2 whose tokens see those on both sides, in attention and in convolutions."""

    name = "lfm2"
    hparams: ClassVar[type[Any]] = Lfm2Hparams
    layer_norms = False
    norms_first = True
    output_norm = "token_embd_norm.weight"

    def block(self, h: Lfm2Hparams, i: int, w: Weights, n_text: int) -> Iterator[Part]:
        if h.n_head_kv[i]:
            d_head = head_size(h, w)
            sizes = (i, h.n_embd, h.n_head, h.n_head_kv[i], d_head, rope_of(h, w, d_head, NEOX))
            yield "attn_norm.weight", EncoderAttention(*sizes, norm=HeadNorm(h.eps), n_text=n_text)
        else:
            yield "attn_norm.weight", CenteredShortConv(i, h.n_embd, h.d_conv)
        yield "ffn_norm.weight", GatedFeedForward(i, h.n_embd, h.n_ff)


class Lfm2Moe(Lfm2):
    """LFM2 with experts, chosen by sigmoids."""

    name = "lfm2moe"
    hparams = Lfm2MoeHparams
