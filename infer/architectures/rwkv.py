"""RWKV-6 and RWKV-7: recurrent, without attention. arXiv:2404.05892, arXiv:2503.14456"""

from collections.abc import Iterator

from hybrid.quant.ggml.families.rwkv import Rwkv6Hparams, Rwkv7Hparams, ShiftHparams

from ..layers.base import Layer
from ..layers.rwkv import ChannelMix
from ..layers.rwkv import Rwkv6 as TimeMix6
from ..layers.rwkv import Rwkv7 as TimeMix7
from ..loading.weights import Weights
from .base import Family, Part


class Rwkv(Family):
    """Time mixing and channel mixing on every layer."""

    layer_norms = True
    embedding_norm = "token_embd_norm.weight"

    def parts(self, h: ShiftHparams, i: int, w: Weights, mixer: Layer) -> Iterator[Part]:
        """The parts of block i with this time mixing."""
        if h.n_shift != 2:
            raise h.wrong(w.gguf, "n_shift", "2")
        yield "attn_norm.weight", mixer
        yield "attn_norm_2.weight", ChannelMix(i, h.n_embd, h.n_ff, gated=not isinstance(mixer, TimeMix7))


class Rwkv6(Rwkv):
    """RWKV-6, Finch."""

    name = "rwkv6"
    hparams = Rwkv6Hparams

    def block(self, h: Rwkv6Hparams, i: int, w: Weights) -> Iterator[Part]:
        yield from self.parts(h, i, w, TimeMix6(i, h.n_embd, h.d_head, 2, h.head_eps, h.n_mix, h.n_decay))


class Rwkv7(Rwkv):
    """RWKV-7, Goose."""

    name = "rwkv7"
    hparams = Rwkv7Hparams

    def block(self, h: Rwkv7Hparams, i: int, w: Weights) -> Iterator[Part]:
        yield from self.parts(h, i, w, TimeMix7(i, h.n_embd, h.d_head, 2, h.head_eps, *h.ranks))
