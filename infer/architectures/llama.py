"""Llama: attention with rotary positions and a gated feed-forward in every layer. arXiv:2302.13971"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from ...quant.ggml.errors import FormatError, UnsupportedError, shown
from ..hparams import key
from ..kernels.rope import NORM
from ..layers import Attention, GatedFeedForward, Layer, Rope
from ..weights import Weights
from .base import AttentionHparams, Family, Part


@dataclass(frozen=True)
class LlamaHparams(AttentionHparams):
    """n_rot: values of a head that RoPE turns, d_head: its values; 0: n_embd / n_head."""

    n_ff: int = key("feed_forward_length", minimum=1)
    freq_base: float = key("rope.freq_base", 10000.0, minimum=1)
    n_rot: int = key("rope.dimension_count", 0)
    d_head: int = key("attention.key_length", 0)
    scaling: str = key("rope.scaling.type", "linear")
    linear_scale: float = key("rope.scaling.factor", 1.0)  # 0, as in llama.cpp: none


class Llama(Family):
    """Llama and Mistral, and what families like them change: the class variables and `feed_forward`."""

    name: ClassVar[str] = "llama"
    hparams: ClassVar[type[LlamaHparams]] = LlamaHparams
    style: ClassVar[int] = NORM  # of RoPE
    normed: ClassVar[Literal["", "heads", "all"]] = ""  # queries and keys: each head, or all heads together
    fused: ClassVar[bool] = False  # queries, keys and values are one matrix, gate and up another

    def block(self, h: Any, i: int, w: Weights) -> Iterator[Part]:
        d_head = h.head_size(w, h.d_head)
        rope = Rope(h.n_rot or d_head, h.freq_base, self.style, _scale(h, w), _factors(h, d_head, w))
        norm_eps = h.eps if self.normed else 0.0
        yield "attn_norm.weight", Attention(
            i, h.n_embd, h.n_head, h.n_head_kv[i], d_head, rope, norm_eps=norm_eps, fused=self.fused,
            norm_all=self.normed == "all",
        )  # fmt: skip
        yield "ffn_norm.weight", self.feed_forward(h, i)

    def feed_forward(self, h: Any, i: int) -> Layer:
        """The second part of block i."""
        return GatedFeedForward(i, h.n_embd, h.n_ff, fused=self.fused)


def _scale(h: LlamaHparams, w: Weights) -> float:
    """What positions are multiplied by."""
    if h.scaling not in ("none", "linear"):
        key = f"{w.gguf.get('general.architecture')}.rope.scaling.type"
        raise UnsupportedError(
            f"{w.gguf.path.name}: {key} = {shown(repr(h.scaling), 60)} is not supported, only none and linear are."
        )
    return 1 / h.linear_scale if h.scaling == "linear" and h.linear_scale else 1.0


def _factors(h: LlamaHparams, d_head: int, w: Weights) -> np.ndarray | None:
    """Llama 3's frequency factors, which the converter stores as a tensor."""
    if "rope_freqs.weight" not in w:
        return None
    factors = w.array("rope_freqs.weight", (h.n_rot or d_head) // 2)
    if not (factors > 0).all():
        raise FormatError(
            f"{w.gguf.path.name}: rope_freqs.weight has values down to {factors.min():g}, expected positive ones. "
            "Convert the model again."
        )
    return factors
