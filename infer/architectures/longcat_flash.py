"""LongCat-Flash: latent attention, experts on a shortcut over every other layer, some of which compute nothing.
arXiv:2509.01322"""

from collections.abc import Iterator
from typing import Any, ClassVar

from hybrid.quant.ggml.families.longcat_flash import LongcatFlashHparams

from ..layers.feed_forward import GatedFeedForward, MixtureOfExperts
from ..layers.ngram_embedding import NgramEmbedding
from ..layers.shortcut import Shortcut
from ..loading.weights import Weights
from .base import Part
from .deepseek2 import DeepSeek2
from .experts import router_of


class LongcatFlash(DeepSeek2):
    """LongCat-Flash; layers with even numbers have experts."""

    name = "longcat-flash"
    hparams: ClassVar[type[Any]] = LongcatFlashHparams
    has_heads = False

    def block(self, h: Any, i: int, w: Weights) -> Iterator[Part]:
        if i == 0 and h.n_gram:
            yield "", NgramEmbedding(i, h.n_embd, h.n_gram, h.n_each, h.n_row, h.base, h.end)
        yield "attn_norm.weight", self.attention(h, i, w)
        experts = None
        if i % 2 == 0:
            router = router_of(h, n_idle=h.n_idle, returns=True)
            experts = MixtureOfExperts(i, h.n_embd, h.n_ff_expert, router)
        yield "ffn_norm.weight", Shortcut(i, GatedFeedForward(i, h.n_embd, h.n_ff), experts)
