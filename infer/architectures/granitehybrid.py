"""Granite 4 H: Mamba-2 and some attention, dense or with experts and a shared one; and Granite with experts and
attention alone. Of ibm-granite."""

from collections.abc import Iterator

from hybrid.quant.ggml.families.granitehybrid import GraniteHybridHparams

from ..loading.weights import Weights
from .base import Family, Part, mamba2
from .granite import Granite, attention, feed_forward


class GraniteHybrid(Family):
    """Granite 4 H, and Bamba, which is stored as one."""

    name = "granitehybrid"
    hparams = GraniteHybridHparams

    def block(self, h: GraniteHybridHparams, i: int, w: Weights) -> Iterator[Part]:
        yield "attn_norm.weight", attention(h, i, w) if h.n_head_kv[i] else mamba2(h, i)
        yield "ffn_norm.weight", feed_forward(h, i)


class GraniteMoe(Granite):
    """Granite 3 with experts, and Granite 4 without Mamba-2 layers. Same code as `Granite`: n_expert decides."""

    name = "granitemoe"
