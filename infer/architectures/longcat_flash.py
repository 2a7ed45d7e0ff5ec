"""LongCat-Flash: latent attention, experts on a shortcut over every other layer, some of which compute nothing.
arXiv:2509.01322"""

from collections.abc import Iterator

from hybrid.quant.ggml.families.longcat_flash import LongcatFlashHparams

from ..kernels.attention.rope import NORM
from ..layers.feed_forward import GatedFeedForward, MixtureOfExperts
from ..layers.shortcut import Shortcut
from ..loading.weights import Weights
from .base import Family, Part
from .experts import router_of
from .latent import latent_attention
from .rope import rope_of


class LongcatFlash(Family):
    """LongCat-Flash; layers with even numbers have experts."""

    name = "longcat-flash"
    hparams = LongcatFlashHparams

    def block(self, h: LongcatFlashHparams, i: int, w: Weights) -> Iterator[Part]:
        yield "attn_norm.weight", latent_attention(h, i, w, rope_of(h, w, h.n_rot, NORM))
        experts = None
        if i % 2 == 0:
            router = router_of(h, n_idle=h.n_idle, returns=True)
            experts = MixtureOfExperts(i, h.n_embd, h.n_ff_expert, router)
        yield "ffn_norm.weight", Shortcut(i, GatedFeedForward(i, h.n_embd, h.n_ff), experts)
