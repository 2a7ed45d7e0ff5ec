"""LFM3: gated short convolutions, attention over a window and over all tokens, gates of heads. Of Liquid AI.

llama.cpp has no such architecture; names and keys are in docs/gguf-extensions.md.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from ..kernels.attention.rope import NEOX
from ..layers.attention import Attention, Rope
from ..layers.base import Layer, PostNorm
from ..layers.feed_forward import GatedFeedForward
from ..layers.short_conv import ShortConv
from ..loading.hparams import key
from ..loading.weights import Weights
from .base import AttentionHparams, Family, Part
from .rope import RopeHparams


@dataclass(frozen=True)
class Lfm3Hparams(RopeHparams, AttentionHparams):
    """A layer without heads of keys is a convolution over d_conv tokens; `local` are those whose tokens see the last
    `window`."""

    n_ff: int = key("feed_forward_length", minimum=1)
    d_head: int = key("attention.key_length", minimum=1)
    d_conv: int = key("shortconv.l_cache", minimum=2)
    window: int = key("attention.sliding_window", 0)
    local: tuple[bool, ...] = key("attention.sliding_window_pattern", pattern=True)
    freq_base_local: float = key("rope.freq_base_swa", 10000.0, minimum=1)


class Lfm3(Family):
    """LFM3. Norms behind the parts of a layer and gates of heads are there where the file has them."""

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
        rope = Rope(h.d_head, h.freq_base_local, NEOX) if h.local[i] else h.rope(w, h.d_head, NEOX)
        return Attention(
            i, h.n_embd, h.n_head, h.n_head_kv[i], h.d_head, rope, window=h.window if h.local[i] else 0,
            norm_eps=h.eps, head_gate=f"blk.{i}.attn_gate.weight" in w,
        )  # fmt: skip

    def _normed(self, h: Lfm3Hparams, layer: Layer, norm: str, w: Weights) -> Layer:
        return PostNorm(layer, norm, h.n_embd, h.eps) if norm in w else layer
