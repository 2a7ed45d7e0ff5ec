"""Qwen2 distilled into RWKV, with its feed-forward parts and norms: QRWKV6, ARWKV. arXiv:2501.15570"""

from collections.abc import Iterator

from hybrid.quant.ggml.families.rwkv import Ranks7, RwkvHparams
from hybrid.quant.ggml.families.rwkv_distilled import Rwkv6Qwen2Hparams

from ..layers.feed_forward import GatedFeedForward
from ..layers.rwkv import Rwkv6 as TimeMix6
from ..layers.rwkv import Rwkv7 as TimeMix7
from ..loading.weights import Weights
from .base import Family, Part


class _Distilled(Family):
    def parts(self, h: RwkvHparams, i: int, w: Weights, mixer: TimeMix6 | TimeMix7) -> Iterator[Part]:
        if h.n_shift != 1:
            raise h.wrong(w.gguf, "n_shift", "1")
        yield "attn_norm.weight", mixer
        yield "ffn_norm.weight", GatedFeedForward(i, h.n_embd, h.n_ff)


class Rwkv6Qwen2(_Distilled):
    """QRWKV6 (arXiv:2505.03005): RWKV-6's time mixing as gated linear attention."""

    name = "rwkv6qwen2"
    hparams = Rwkv6Qwen2Hparams

    def block(self, h: Rwkv6Qwen2Hparams, i: int, w: Weights) -> Iterator[Part]:
        mixer = TimeMix6(i, h.n_embd, h.d_head, 1, h.head_eps, h.n_mix, h.n_decay, h.n_kv)
        yield from self.parts(h, i, w, mixer)


class Arwkv7(_Distilled):
    """ARWKV: RWKV-7's time mixing, with a gate or without."""

    name = "arwkv7"
    hparams = Ranks7

    def block(self, h: Ranks7, i: int, w: Weights) -> Iterator[Part]:
        yield from self.parts(h, i, w, TimeMix7(i, h.n_embd, h.d_head, 1, h.head_eps, *h.ranks))
