"""Phi-4-mini-flash: Mamba-1 and differential attention in turns, then layers on the memory of two. arXiv:2507.06607

llama.cpp has no such architecture; names and keys are in docs/gguf-extensions.md.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from ..layers.attention import Attention
from ..layers.base import Layer
from ..layers.differential_attention import BorrowedDifferential, DifferentialAttention
from ..layers.feed_forward import GatedFeedForward
from ..layers.gated_memory import GatedMemoryUnit
from ..loading.hparams import key
from ..loading.weights import Weights
from .base import AttentionHparams, Family, Mamba1Hparams, Part

SCANNED = "scanned"  # what the last scan leaves to the units behind it


@dataclass(frozen=True)
class Phi4FlashHparams(AttentionHparams, Mamba1Hparams):
    """A layer without heads of keys is Mamba-1; `local` are those whose tokens see the last `window`. The last n_shared
    layers keep nothing: without heads of keys, they gate what the last scan made."""

    eps: float = key("attention.layer_norm_epsilon")
    sub_eps: float = key("attention.layer_norm_rms_epsilon")  # of the norm behind a difference
    n_ff: int = key("feed_forward_length", minimum=1)
    window: int = key("attention.sliding_window", 0)
    local: tuple[bool, ...] = key("attention.sliding_window_pattern", pattern=True)
    n_shared: int = key("attention.shared_kv_layers")

    def source(self, w: Weights, *, attends: bool) -> int:
        """The layer whose keys, or whose scan, the layers that keep nothing use: the last one of its kind."""
        first = max(0, self.n_layer - self.n_shared)
        same = [i for i in range(first) if bool(self.n_head_kv[i]) == attends]
        if not same or (attends and self.local[same[-1]]):
            what = "attention over all tokens" if attends else "Mamba"
            raise w.wrong("attention.shared_kv_layers", self.n_shared, f"a layer of {what} as the last of its kind")
        return same[-1]


class Phi4Flash(Family):
    """Phi-4-mini-flash-reasoning."""

    name = "phi4flash"
    hparams = Phi4FlashHparams
    layer_norms = True

    def block(self, h: Phi4FlashHparams, i: int, w: Weights) -> Iterator[Part]:
        yield "attn_norm.weight", self._attention(h, i, w) if h.n_head_kv[i] else self._scan(h, i, w)
        yield "ffn_norm.weight", GatedFeedForward(i, h.n_embd, h.n_ff, fused=True)

    def _scan(self, h: Phi4FlashHparams, i: int, w: Weights) -> Layer:
        if i >= h.n_layer - h.n_shared:
            h.source(w, attends=False)
            return GatedMemoryUnit(i, h.n_embd, h.d_inner, SCANNED)
        return h.mamba1(i, leaves=SCANNED if h.n_shared and i == h.source(w, attends=False) else "")

    def _attention(self, h: Phi4FlashHparams, i: int, w: Weights) -> Attention:
        d, n_kv = h.head_size(w), h.n_head_kv[i]
        if n_kv % 2 or h.n_head % n_kv:
            raise w.wrong("attention.head_count_kv", n_kv, f"an even divisor of the {h.n_head} query heads")
        sizes = h.n_embd, h.n_head, n_kv // 2, 2 * d
        if i < h.n_layer - h.n_shared:
            return DifferentialAttention(i, *sizes, window=h.window if h.local[i] else 0, sub_eps=h.sub_eps)
        source = h.source(w, attends=True)
        if h.n_head_kv[source] != n_kv:
            raise w.wrong("attention.head_count_kv", n_kv, f"the {h.n_head_kv[source]} heads of layer {source}")
        return BorrowedDifferential(source, *sizes, block=i, sub_eps=h.sub_eps)
