"""Falcon-H1: attention and Mamba-2 side by side on every layer, added up. arXiv:2507.22448"""

from collections.abc import Iterator

from hybrid.quant.ggml.families.falcon_h1 import FalconH1Hparams

from ..kernels.attention.rope import NEOX
from ..layers.attention import Attention
from ..layers.base import Sum
from ..layers.feed_forward import GatedFeedForward
from ..loading.weights import Weights
from .base import Family, Part, head_size, mamba2
from .rope import rope_of


class FalconH1(Family):
    """Falcon-H1; its multipliers are folded into the weights by the converter."""

    name = "falcon-h1"
    hparams = FalconH1Hparams

    def block(self, h: FalconH1Hparams, i: int, w: Weights) -> Iterator[Part]:
        d_head = head_size(h, w, h.d_head)
        attention = Attention(i, h.n_embd, h.n_head, h.n_head_kv[i], d_head, rope_of(h, w, d_head, NEOX))
        mamba = mamba2(h, i, normed=f"blk.{i}.ssm_norm.weight" in w, norm_first=h.norm_first)
        yield "attn_norm.weight", Sum(attention, mamba)
        yield "ffn_norm", GatedFeedForward(i, h.n_embd, h.n_ff)
