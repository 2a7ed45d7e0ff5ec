"""Falcon-H1: attention and Mamba-2 side by side on every layer, added up. arXiv:2507.22448"""

from collections.abc import Iterator
from dataclasses import dataclass

from ..kernels.attention.rope import NEOX
from ..layers.attention import Attention
from ..layers.base import Sum
from ..layers.feed_forward import GatedFeedForward
from ..loading.hparams import key
from ..loading.weights import Weights
from .base import AttentionHparams, Family, Mamba2Hparams, Part
from .rope import RopeHparams


@dataclass(frozen=True)
class FalconH1Hparams(RopeHparams, AttentionHparams, Mamba2Hparams):
    """Of attention and of Mamba-2, which every layer has both of."""

    n_ff: int = key("feed_forward_length", minimum=1)
    d_head: int = key("attention.key_length", 0)
    norm_first: bool = key("ssm.norm_before_gate", False)  # a key that only our converter writes


class FalconH1(Family):
    """Falcon-H1; its multipliers are folded into the weights by the converter."""

    name = "falcon-h1"
    hparams = FalconH1Hparams

    def block(self, h: FalconH1Hparams, i: int, w: Weights) -> Iterator[Part]:
        d_head = h.head_size(w, h.d_head)
        attention = Attention(i, h.n_embd, h.n_head, h.n_head_kv[i], d_head, h.rope(w, d_head, NEOX))
        mamba = h.mamba2(i, normed=f"blk.{i}.ssm_norm.weight" in w, norm_first=h.norm_first)
        yield "attn_norm.weight", Sum(attention, mamba)
        yield "ffn_norm", GatedFeedForward(i, h.n_embd, h.n_ff)
