"""RWKV-7a and RWKV-7b: RWKV-7 with tables of the vocabulary on every layer, in 7b also attention. Of BlinkDL."""

from collections.abc import Iterator

from hybrid.quant.ggml.families.rwkv import Rwkv7aHparams

from ..layers.base import Layer
from ..layers.deep_embed import DeepChannelMix, DeepEmbedAttention, KeptEmbedding, NormedBeside
from ..layers.rwkv import Rwkv7 as TimeMix7
from ..loading.weights import Weights
from .base import Part
from .rwkv import Rwkv


class Rwkv7a(Rwkv):
    """RWKV-7 with DeepEmbed."""

    name = "rwkv7a"
    hparams = Rwkv7aHparams

    def block(self, h: Rwkv7aHparams, i: int, w: Weights) -> Iterator[Part]:
        if h.n_shift != 2:
            raise h.wrong(w.gguf, "n_shift", "2")
        first: Layer = TimeMix7(i, h.n_embd, h.d_head, 2, h.head_eps, *h.ranks)
        norm = "attn_norm"
        if h.d_key:
            n_head = max(1, h.n_embd // h.d_key)
            attention = DeepEmbedAttention(i, h.n_embd, n_head, n_head, h.d_key, map_rank=h.map_rank, eps=h.eps)
            first, norm = NormedBeside(first, attention, f"blk.{i}.{norm}", h.n_embd, h.eps), ""
        if i == 0:
            first = KeptEmbedding(first, h.n_embd, h.eps)
        yield norm and norm + ".weight", first
        yield "attn_norm_2.weight", DeepChannelMix(i, h.n_embd, h.n_ff, gated=False, n_deep=h.n_deep)
