"""Falcon: layer norms, no gates, the feed-forward part parallel to attention, few key heads. arXiv:2311.16867"""

from collections.abc import Iterator

from hybrid.quant.ggml.families.falcon import FalconHparams

from ..kernels.attention.rope import NEOX
from ..kernels.rows.gelu import gelu, gelu_tanh
from ..layers.attention import Attention
from ..layers.base import Sum
from ..layers.feed_forward import FeedForward
from ..layers.parallel import NormedSum
from ..loading.weights import Weights
from .base import Family, Part, head_size
from .rope import rope_of


class Falcon(Family):
    """Falcon: one norm for both parts (7B), or one for each, of which attn_norm_2 is attention's (40B)."""

    name = "falcon"
    hparams = FalconHparams
    layer_norms = True

    def block(self, h: FalconHparams, i: int, w: Weights) -> Iterator[Part]:
        d_head, p = head_size(h, w), f"blk.{i}."
        rope = rope_of(h, w, d_head, NEOX)
        attention = Attention(i, h.n_embd, h.n_head, h.n_head_kv[i], d_head, rope, fused=True)
        feed_forward = FeedForward(i, h.n_embd, h.n_ff, act=gelu if h.exact else gelu_tanh)
        if p + "attn_norm_2.weight" in w:
            yield "", NormedSum(attention, feed_forward, (p + "attn_norm_2", p + "attn_norm"), h.n_embd, h.eps)
        else:
            yield "attn_norm.weight", Sum(attention, feed_forward)
