"""GPT-NeoX and Pythia: layer norms, no gates, the feed-forward part parallel to attention. arXiv:2204.06745"""

from collections.abc import Iterator

from hybrid.quant.ggml.families.gptneox import GptNeoxHparams

from ..kernels.attention.rope import NEOX
from ..kernels.rows.gelu import gelu, gelu_tanh
from ..layers.attention import Attention
from ..layers.feed_forward import FeedForward
from ..layers.parallel import NormedSum
from ..loading.weights import Weights
from .base import Family, Part, head_size
from .rope import rope_of


class GptNeox(Family):
    """GPT-NeoX: the two parts read the same rows, or run one after the other."""

    name = "gptneox"
    hparams = GptNeoxHparams
    layer_norms = True

    def block(self, h: GptNeoxHparams, i: int, w: Weights) -> Iterator[Part]:
        d_head = head_size(h, w)
        rope = rope_of(h, w, h.n_rot or d_head, NEOX)
        attention = Attention(i, h.n_embd, h.n_head, h.n_head, d_head, rope, fused=True)
        feed_forward = FeedForward(i, h.n_embd, h.n_ff, act=gelu if h.exact else gelu_tanh)
        norms = f"blk.{i}.attn_norm", f"blk.{i}.ffn_norm"
        if h.parallel:
            yield "", NormedSum(attention, feed_forward, norms, h.n_embd, h.eps)
        else:
            yield "attn_norm.weight", attention
            yield "ffn_norm.weight", feed_forward
