"""Llama: attention with rotary positions and a gated feed-forward in every layer. arXiv:2302.13971"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from ..kernels.attention.rope import NORM
from ..layers.attention import Attention, Rope
from ..layers.base import Layer
from ..layers.feed_forward import GatedFeedForward, MixtureOfExperts
from ..layers.query_scale import QueryScale
from ..loading.hparams import key
from ..loading.weights import Weights
from .base import AttentionHparams, Family, Part
from .rope import RopeHparams


@dataclass(frozen=True)
class LlamaHparams(RopeHparams, AttentionHparams):
    """n_rot: values of a head that RoPE turns, d_head: its values; 0: n_embd / n_head. windows: tokens that a token of
    a layer sees, 0: all. The key is ours, since llama.cpp goes without a window where its own key gives one."""

    n_ff: int = key("feed_forward_length", minimum=1)
    n_rot: int = key("rope.dimension_count", 0)
    d_head: int = key("attention.key_length", 0)
    windows: tuple[int, ...] = key("hybrid.attention.sliding_window", 0, per_layer=True)
    n_expert: int = key("expert_count", 0)
    n_expert_used: int = key("expert_used_count", 0)


class Llama(Family):
    """Llama and Mistral, and what families like them change: the class variables and the methods."""

    name: ClassVar[str] = "llama"
    hparams: ClassVar[type[LlamaHparams]] = LlamaHparams
    style: ClassVar[int] = NORM  # of RoPE
    normed: ClassVar[Literal["", "heads", "all"]] = ""  # queries and keys: each head, or all heads together
    norm_last: ClassVar[bool] = False  # behind RoPE
    norms: ClassVar[tuple[str, str]] = ("attn_norm.weight", "ffn_norm.weight")  # in front of the parts of a block
    fused: ClassVar[bool] = False  # queries, keys and values are one matrix, gate and up another

    def block(self, h: Any, i: int, w: Weights) -> Iterator[Part]:
        d_head = h.head_size(w, h.d_head)
        norm_eps = h.eps if self.normed else 0.0
        yield self.norms[0], Attention(
            i, h.n_embd, h.n_head, h.n_head_kv[i], d_head, self.rope(h, i, w, h.n_rot or d_head),
            window=self.window(h, i), norm_eps=norm_eps, fused=self.fused, norm_all=self.normed == "all",
            norm_last=self.norm_last,
            query_scale=self.query_scale(h),
        )  # fmt: skip
        yield self.norms[1], self.feed_forward(h, i, w)

    def window(self, h: Any, i: int) -> int:
        """How many tokens a token of block i sees; 0: all."""
        return h.windows[i]

    def rope(self, h: Any, i: int, w: Weights, n_rot: int) -> Rope | None:
        """How n_rot values of a head of block i turn; None: they do not."""
        return h.rope(w, n_rot, self.style)

    def query_scale(self, h: Any) -> QueryScale | None:
        """What queries are multiplied by, by position; None: nothing."""
        return None

    def feed_forward(self, h: Any, i: int, w: Weights) -> Layer:
        """The second part of block i: experts where the file has a router for them (Mixtral)."""
        if f"blk.{i}.ffn_gate_inp.weight" in w:
            return MixtureOfExperts(i, h.n_embd, h.n_ff, h.n_expert, h.n_expert_used, renormalize=True)
        return GatedFeedForward(i, h.n_embd, h.n_ff, fused=self.fused)
