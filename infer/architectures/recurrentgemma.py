"""RecurrentGemma: gated linear recurrences, and attention over a window on every third layer. arXiv:2404.07839

llama.cpp has no such architecture; names and keys are in docs/gguf-extensions.md.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from ..kernels.attention.rope import NEOX
from ..layers.attention import Attention, Rope
from ..layers.feed_forward import GatedFeedForward
from ..layers.rg_lru import RgLru
from ..loading.hparams import Scales, key
from ..loading.weights import Weights
from .base import AttentionHparams, Family, Part


@dataclass(frozen=True)
class RecurrentGemmaHparams(AttentionHparams):
    """A layer without heads of keys has a recurrence: n_channel channels in n_lru_head heads, each with its own
    matrices for the gates."""

    n_ff: int = key("feed_forward_length", minimum=1)
    d_head: int = key("attention.key_length", 0)
    window: int = key("attention.sliding_window", 0)
    n_rot: int = key("rope.dimension_count", 0)
    freq_base: float = key("rope.freq_base", 10000.0, minimum=1)
    n_channel: int = key("lru.width", minimum=1)
    n_lru_head: int = key("lru.head_count", minimum=1)
    d_conv: int = key("ssm.conv_kernel", minimum=2)
    embedding_scale: float = key("embedding_scale", 1.0)
    cap: float = key("final_logit_softcapping", 0.0)

    @property
    def scales(self) -> Scales:
        return Scales(embedding=self.embedding_scale)

    @property
    def logit_cap(self) -> float:
        return self.cap


class RecurrentGemma(Family):
    """RecurrentGemma 2B and 9B."""

    name = "recurrentgemma"
    hparams = RecurrentGemmaHparams

    def block(self, h: RecurrentGemmaHparams, i: int, w: Weights) -> Iterator[Part]:
        if n_kv := h.n_head_kv[i]:
            d_head = h.head_size(w, h.d_head)
            rope = Rope(h.n_rot or d_head, h.freq_base, NEOX)
            yield "attn_norm.weight", Attention(i, h.n_embd, h.n_head, n_kv, d_head, rope, window=h.window)
        else:
            yield "attn_norm.weight", RgLru(i, h.n_embd, h.n_channel, h.n_lru_head, h.d_conv)
        yield "ffn_norm.weight", GatedFeedForward(i, h.n_embd, h.n_ff, activation="gelu")
