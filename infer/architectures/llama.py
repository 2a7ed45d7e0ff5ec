"""Llama: attention with rotary positions and a gated feed-forward in every layer. arXiv:2302.13971"""

from collections.abc import Iterator
from typing import Any, ClassVar

from hybrid.quant.ggml.families.llama import LlamaHparams

from ..kernels.attention.rope import NORM
from ..layers.attention import Attention, Rope
from ..layers.base import Layer
from ..layers.feed_forward import GatedFeedForward, MixtureOfExperts
from ..layers.head_norm import HeadNorm, NormWeights
from ..layers.query_scale import QueryScale
from ..layers.router import Router
from ..loading.weights import Weights
from .base import Family, Part, head_size
from .rope import rope_of


class Llama(Family):
    """Llama and Mistral. Similar families override the class variables and methods."""

    name: ClassVar[str] = "llama"
    hparams: ClassVar[type[LlamaHparams]] = LlamaHparams
    style: ClassVar[int] = NORM  # of RoPE
    normed: ClassVar[NormWeights | None] = None  # norms on queries and keys
    norm_after_rope: ClassVar[bool] = False
    norms: ClassVar[tuple[str, str]] = ("attn_norm.weight", "ffn_norm.weight")  # before the parts of a block
    fused: ClassVar[bool] = False  # queries, keys and values are one matrix, gate and up another

    def block(self, h: Any, i: int, w: Weights) -> Iterator[Part]:
        d_head = head_size(h, w, h.d_head)
        norm = HeadNorm(h.eps, self.normed, self.norm_after_rope) if self.normed else None
        yield self.norms[0], Attention(
            i, h.n_embd, self.n_head(h, i), h.n_head_kv[i], d_head, self.rope(h, i, w, h.n_rot or d_head),
            window=self.window(h, i), norm=norm, fused=self.fused, query_scale=self.query_scale(h),
        )  # fmt: skip
        yield self.norms[1], self.feed_forward(h, i, w)

    def n_head(self, h: Any, i: int) -> int:
        """Heads of queries of block i."""
        n_head: int = h.n_head
        return n_head

    def window(self, h: Any, i: int) -> int:
        """How many tokens a token of block i sees; 0: all."""
        window: int = h.windows[i]
        return window

    def rope(self, h: Any, i: int, w: Weights, n_rot: int) -> Rope | None:
        """RoPE on n_rot values of a head in block i; None: no RoPE."""
        return rope_of(h, w, n_rot, self.style)

    def query_scale(self, h: Any) -> QueryScale | None:
        """Factors on queries by position; None: no factors."""
        return None

    def feed_forward(self, h: Any, i: int, w: Weights) -> Layer:
        """The second part of block i: experts if the file has a router for them (Mixtral)."""
        if f"blk.{i}.ffn_gate_inp.weight" in w:
            return MixtureOfExperts(i, h.n_embd, h.n_ff, Router(h.n_expert, h.n_expert_used, renormalize=True))
        return GatedFeedForward(i, h.n_embd, h.n_ff, fused=self.fused)
