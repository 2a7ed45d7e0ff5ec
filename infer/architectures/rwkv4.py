"""RWKV-4 and RWKV-5: recurrent, with decays and token shifts that do not depend on the token.
arXiv:2305.13048, arXiv:2404.05892"""

from collections.abc import Iterator

from hybrid.quant.ggml.families.rwkv import Rwkv4Hparams, Rwkv5Hparams

from ..layers.rwkv import Rwkv4 as TimeMix4
from ..layers.rwkv import Rwkv5 as TimeMix5
from ..loading.weights import Weights
from .base import Part
from .rwkv import Rwkv


class Rwkv4(Rwkv):
    """RWKV-4, Dove: a state of vectors."""

    name = "rwkv4"
    hparams = Rwkv4Hparams

    def block(self, h: Rwkv4Hparams, i: int, w: Weights) -> Iterator[Part]:
        yield from self.parts(h, i, w, TimeMix4(i, h.n_embd))


class Rwkv5(Rwkv):
    """RWKV-5, Eagle: a state of matrices."""

    name = "rwkv5"
    hparams = Rwkv5Hparams

    def block(self, h: Rwkv5Hparams, i: int, w: Weights) -> Iterator[Part]:
        yield from self.parts(h, i, w, TimeMix5(i, h.n_embd, h.d_head, 2, h.head_eps))
