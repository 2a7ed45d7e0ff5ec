"""OpenELM: every layer has its own number of heads and feed-forward size. arXiv:2404.14619"""

from collections.abc import Iterator

from hybrid.quant.ggml.families.openelm import OpenElmHparams

from ..kernels.attention.rope import NEOX
from ..layers.attention import Attention
from ..layers.feed_forward import GatedFeedForward
from ..layers.head_norm import HeadNorm
from ..loading.weights import Weights
from .base import Family, Part
from .rope import rope_of


class OpenElm(Family):
    """OpenELM: queries, keys and values are one matrix, norms on queries and keys."""

    name = "openelm"
    hparams = OpenElmHparams

    def block(self, h: OpenElmHparams, i: int, w: Weights) -> Iterator[Part]:
        rope = rope_of(h, w, h.d_head, NEOX)
        yield "attn_norm.weight", Attention(
            i, h.n_embd, h.n_head[i], h.n_head_kv[i], h.d_head, rope, norm=HeadNorm(h.eps), fused=True
        )  # fmt: skip
        yield "ffn_norm.weight", GatedFeedForward(i, h.n_embd, h.n_ff[i])
