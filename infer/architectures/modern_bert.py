"""ModernBERT: a BERT with rotary positions, gates, norms before the parts, and a window on most layers.
arXiv:2412.13663"""

from collections.abc import Iterator

from hybrid.quant.ggml.families.modern_bert import ModernBertHparams

from ..kernels.attention.rope import NEOX
from ..layers.attention import EncoderAttention
from ..layers.feed_forward import Activation, GatedFeedForward
from ..loading.weights import Weights
from .base import EncoderFamily, Part, head_size
from .rope import rope_of

ACTIVATIONS: dict[str, Activation] = {"gelu": "gelu_erf", "silu": "silu", "swish": "silu"}


class ModernBert(EncoderFamily):
    """ModernBERT. The first layer has no norm before its attention."""

    name = "modern-bert"
    hparams = ModernBertHparams
    embedding_norm = "token_embd_norm.weight"
    norm_biases = False
    norms_first = True
    output_norm = "output_norm.weight"

    def half_window(self, h: ModernBertHparams) -> int:
        return h.window // 2

    def block(self, h: ModernBertHparams, i: int, w: Weights, n_text: int) -> Iterator[Part]:
        if h.activation not in ACTIVATIONS:
            raise w.wrong("hidden_activation", h.activation, " or ".join(ACTIVATIONS))
        d_head, norm = head_size(h, w), f"blk.{i}.attn_norm.weight"
        local = h.window > 0 and i % h.period > 0
        rope = rope_of(h, w, d_head, NEOX)
        rope.freq_base = h.freq_base_local if local else h.freq_base
        yield (
            "attn_norm.weight" if i or norm in w else "",
            EncoderAttention(
                i, h.n_embd, h.n_head, h.n_head, d_head, rope, window=h.window // 2 + 1 if local else 0, fused=True,
                n_text=n_text,
            ),
        )  # fmt: skip
        yield "ffn_norm.weight", GatedFeedForward(i, h.n_embd, h.n_ff, activation=ACTIVATIONS[h.activation], fused=True)
