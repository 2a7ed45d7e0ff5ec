"""EmbeddingGemma: a Gemma 3 whose tokens see those on both sides. arXiv:2509.20354"""

from collections.abc import Iterator

from hybrid.quant.ggml.families.embedding_gemma import EmbeddingGemmaHparams

from ..kernels.attention.rope import NEOX
from ..layers.attention import EncoderAttention, Rope
from ..layers.head_norm import HeadNorm
from ..loading.weights import Weights
from .base import EncoderFamily, Part, head_size
from .gemma import parts_around
from .rope import rope_of


class EmbeddingGemma(EncoderFamily):
    """EmbeddingGemma. A window counts the tokens of both sides together."""

    name = "gemma-embedding"
    hparams = EmbeddingGemmaHparams
    layer_norms = False
    norms_first = True
    output_norm = "output_norm.weight"

    def half_window(self, h: EmbeddingGemmaHparams) -> int:
        return h.window // 2

    def block(self, h: EmbeddingGemmaHparams, i: int, w: Weights, n_text: int) -> Iterator[Part]:
        d_head = head_size(h, w, h.d_head)
        local = h.window > 0 and h.local[i]
        rope = Rope(d_head, h.freq_base_local or h.freq_base, NEOX) if local else rope_of(h, w, d_head, NEOX)
        attention = EncoderAttention(
            i, h.n_embd, h.n_head, h.n_head_kv[i], d_head, rope, h.attention_scale,
            h.window // 2 + 1 if local else 0, h.attention_cap, HeadNorm(h.eps), n_text=n_text,
        )  # fmt: skip
        yield from parts_around(h, i, attention)
