"""OpenELM: every layer has its own number of heads and feed-forward size. arXiv:2404.14619"""

from collections.abc import Iterator
from dataclasses import dataclass

from ..kernels.attention.rope import NEOX
from ..layers.attention import Attention
from ..layers.feed_forward import GatedFeedForward
from ..loading.hparams import key
from ..loading.weights import Weights
from .base import Family, Part
from .rope import RopeHparams


@dataclass(frozen=True)
class OpenElmHparams(RopeHparams):
    """Sizes per layer."""

    n_head: tuple[int, ...] = key("attention.head_count", per_layer=True, minimum=1)
    n_head_kv: tuple[int, ...] = key("attention.head_count_kv", per_layer=True, minimum=1)
    n_ff: tuple[int, ...] = key("feed_forward_length", per_layer=True, minimum=1)
    d_head: int = key("attention.key_length", minimum=1)


class OpenElm(Family):
    """OpenELM: queries, keys and values are one matrix, norms on queries and keys."""

    name = "openelm"
    hparams = OpenElmHparams

    def block(self, h: OpenElmHparams, i: int, w: Weights) -> Iterator[Part]:
        rope = h.rope(w, h.d_head, NEOX)
        yield "attn_norm.weight", Attention(
            i, h.n_embd, h.n_head[i], h.n_head_kv[i], h.d_head, rope, norm_eps=h.eps, fused=True
        )  # fmt: skip
        yield "ffn_norm.weight", GatedFeedForward(i, h.n_embd, h.n_ff[i])
