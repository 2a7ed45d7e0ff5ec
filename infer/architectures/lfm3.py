"""LFM3: gated short convolutions, attention over a window and over all tokens, gates of heads. Of Liquid AI.

llama.cpp has no such architecture; names and keys are in docs/gguf-extensions.md.
"""

from collections.abc import Iterator

from hybrid.quant.ggml.families.lfm3 import Lfm3Hparams

from ..kernels.attention.rope import NEOX
from ..layers.attention import Attention, Rope
from ..layers.base import Gate, Layer, PostNorm
from ..layers.feed_forward import GatedFeedForward
from ..layers.head_norm import HeadNorm
from ..layers.short_conv import ShortConv
from ..loading.weights import Weights
from .base import Family, Part
from .rope import rope_of


class Lfm3(Family):
    """LFM3. Norms after the parts of a layer, and gates of heads, are used if the file has them."""

    name = "lfm3"
    hparams = Lfm3Hparams
    output_norm = "token_embd_norm.weight"  # as in lfm2

    def block(self, h: Lfm3Hparams, i: int, w: Weights) -> Iterator[Part]:
        p = f"blk.{i}."
        mixer = self._attention(h, i, w) if h.n_head_kv[i] else ShortConv(i, h.n_embd, h.d_conv)
        yield "attn_norm.weight", self._normed(h, mixer, p + "post_attention_norm.weight", w)
        feed_forward = GatedFeedForward(i, h.n_embd, h.n_ff)
        yield "ffn_norm.weight", self._normed(h, feed_forward, p + "post_ffw_norm.weight", w)

    def _attention(self, h: Lfm3Hparams, i: int, w: Weights) -> Attention:
        rope = Rope(h.d_head, h.freq_base_local, NEOX) if h.local[i] else rope_of(h, w, h.d_head, NEOX)
        return Attention(
            i, h.n_embd, h.n_head, h.n_head_kv[i], h.d_head, rope, window=h.window if h.local[i] else 0,
            norm=HeadNorm(h.eps), gate=Gate.HEADS if f"blk.{i}.attn_gate.weight" in w else None,
        )  # fmt: skip

    def _normed(self, h: Lfm3Hparams, layer: Layer, norm: str, w: Weights) -> Layer:
        return PostNorm(layer, norm, h.n_embd, h.eps) if norm in w else layer
