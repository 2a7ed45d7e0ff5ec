"""Phi-4-mini-flash: alternating Mamba-1 and differential attention, then layers that share memory. arXiv:2507.06607

llama.cpp has no such architecture; names and keys are in docs/gguf-extensions.md.
"""

from collections.abc import Iterator

from hybrid.quant.ggml.families.phi4flash import Phi4FlashHparams

from ..layers.attention import Attention
from ..layers.base import Layer
from ..layers.differential_attention import BorrowedDifferential, DifferentialAttention
from ..layers.feed_forward import GatedFeedForward
from ..layers.gated_memory import GatedMemoryUnit
from ..loading.weights import Weights
from .base import Family, Part, head_size, mamba1

SCANNED = "scanned"  # name of the rows that the last scan leaves to the gated memory units


def source_of(h: Phi4FlashHparams, w: Weights, *, attends: bool) -> int:
    """The layer whose keys (attends) or scan the last n_shared layers use: the last of its kind before them."""
    first = max(0, h.n_layer - h.n_shared)
    same = [i for i in range(first) if bool(h.n_head_kv[i]) == attends]
    if not same or (attends and h.local[same[-1]]):
        what = "attention over all tokens" if attends else "Mamba"
        raise h.wrong(w.gguf, "n_shared", f"a layer of {what} as the last of its kind")
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
            source_of(h, w, attends=False)
            return GatedMemoryUnit(i, h.n_embd, h.d_inner, SCANNED)
        return mamba1(h, i, leaves=SCANNED if h.n_shared and i == source_of(h, w, attends=False) else "")

    def _attention(self, h: Phi4FlashHparams, i: int, w: Weights) -> Attention:
        d, n_kv = head_size(h, w), h.n_head_kv[i]
        if n_kv % 2 or h.n_head % n_kv:
            raise h.wrong(w.gguf, "n_head_kv", f"an even divisor of the {h.n_head} query heads", n_kv)
        sizes = h.n_embd, h.n_head, n_kv // 2, 2 * d
        if i < h.n_layer - h.n_shared:
            return DifferentialAttention(i, *sizes, window=h.window if h.local[i] else 0, sub_eps=h.sub_eps)
        source = source_of(h, w, attends=True)
        if h.n_head_kv[source] != n_kv:
            raise h.wrong(w.gguf, "n_head_kv", f"the {h.n_head_kv[source]} heads of layer {source}", n_kv)
        return BorrowedDifferential(source, *sizes, block=i, sub_eps=h.sub_eps)
