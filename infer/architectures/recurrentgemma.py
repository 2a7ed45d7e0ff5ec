"""RecurrentGemma: gated linear recurrences, and attention over a window on every third layer. arXiv:2404.07839

llama.cpp has no such architecture; names and keys are in docs/gguf-extensions.md.
"""

from collections.abc import Iterator

from hybrid.quant.ggml.families.recurrentgemma import RecurrentGemmaHparams

from ..kernels.attention.rope import NEOX
from ..layers.attention import Attention, Rope
from ..layers.feed_forward import GatedFeedForward
from ..layers.rg_lru import RgLru
from ..loading.weights import Weights
from .base import Family, Part, head_size


class RecurrentGemma(Family):
    """RecurrentGemma 2B and 9B."""

    name = "recurrentgemma"
    hparams = RecurrentGemmaHparams

    def block(self, h: RecurrentGemmaHparams, i: int, w: Weights) -> Iterator[Part]:
        if n_kv := h.n_head_kv[i]:
            d_head = head_size(h, w, h.d_head)
            rope = Rope(h.n_rot or d_head, h.freq_base, NEOX)
            yield "attn_norm.weight", Attention(i, h.n_embd, h.n_head, n_kv, d_head, rope, window=h.window)
        else:
            yield "attn_norm.weight", RgLru(i, h.n_embd, h.n_channel, h.n_lru_head, h.d_conv)
        yield "ffn_norm.weight", GatedFeedForward(i, h.n_embd, h.n_ff, activation="gelu")
