"""Gemma 1, 2 and 3: in the later two attention over a window on most layers, norms before and behind every part.
arXiv:2403.08295, arXiv:2408.00118, arXiv:2503.19786"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from ..kernels.attention.rope import NEOX
from ..layers.attention import Attention, Rope
from ..layers.base import Layer, PostNorm
from ..layers.feed_forward import GatedFeedForward
from ..loading.hparams import Scales, key
from ..loading.weights import Weights
from .base import AttentionHparams, Family, Part
from .llama import Llama, LlamaHparams
from .rope import RopeHparams


@dataclass(frozen=True)
class GemmaHparams(LlamaHparams):
    @property
    def scales(self) -> Scales:
        return Scales(embedding=math.sqrt(self.n_embd))


class Gemma(Llama):
    """The first Gemma: a Llama with GELU in its gates. arXiv:2403.08295"""

    name = "gemma"
    hparams = GemmaHparams
    style = NEOX

    def feed_forward(self, h: Any, i: int, w: Weights) -> Layer:
        return GatedFeedForward(i, h.n_embd, h.n_ff, activation="gelu")


@dataclass(frozen=True)
class Gemma2Hparams(RopeHparams, AttentionHparams):
    """window: tokens that a local layer sees, local: which layers these are; attention_cap, cap: scores and logits are
    cap * tanh(x / cap), 0: as they are; attention_scale 0: from the head size."""

    n_ff: int = key("feed_forward_length", minimum=1)
    d_head: int = key("attention.key_length", 0)
    window: int = key("attention.sliding_window", 4096)
    local: tuple[bool, ...] = key("attention.sliding_window_pattern", 2, pattern=True)
    attention_cap: float = key("attn_logit_softcapping", 50.0)
    cap: float = key("final_logit_softcapping", 30.0)
    attention_scale: float = key("attention.scale", 0.0)  # a key that only our converter writes
    freq_base_local: float = key("rope.freq_base_swa", 0.0)

    @property
    def scales(self) -> Scales:
        return Scales(embedding=math.sqrt(self.n_embd))

    @property
    def logit_cap(self) -> float:
        return self.cap


@dataclass(frozen=True)
class Gemma3Hparams(Gemma2Hparams):
    """Other defaults: no caps, and different bases of RoPE for local layers and for the rest."""

    window: int = key("attention.sliding_window", 0)
    local: tuple[bool, ...] = key("attention.sliding_window_pattern", 6, pattern=True)
    attention_cap: float = key("attn_logit_softcapping", 0.0)
    cap: float = key("final_logit_softcapping", 0.0)
    freq_base: float = key("rope.freq_base", 1000000.0, minimum=1)
    freq_base_local: float = key("rope.freq_base_swa", 10000.0)


class Gemma2(Family):
    """Gemma 2: local and global layers take turns, unless the file says otherwise."""

    name: ClassVar[str] = "gemma2"
    hparams: ClassVar[type[Any]] = Gemma2Hparams
    normed: ClassVar[bool] = False  # queries and keys
    all_scaled: ClassVar[bool] = True  # RoPE is scaled on local layers too
    n_layer_27b: ClassVar[int] = 46  # the size whose scores are scaled by the model's width; llama.cpp knows it so

    def block(self, h: Gemma2Hparams, i: int, w: Weights) -> Iterator[Part]:
        d_head = h.head_size(w, h.d_head)
        local = h.window > 0 and h.local[i]
        rope = h.rope(w, d_head, NEOX) if self.all_scaled or not local else Rope(d_head, h.freq_base, NEOX)
        rope.freq_base = (h.freq_base_local if local else 0.0) or h.freq_base
        width = h.n_embd // h.n_head if h.n_layer == self.n_layer_27b else d_head
        attention = Attention(
            i, h.n_embd, h.n_head, h.n_head_kv[i], d_head, rope, h.attention_scale or width**-0.5,
            h.window if local else 0, h.attention_cap, h.eps if self.normed else 0.0,
        )  # fmt: skip
        p = f"blk.{i}."
        yield "attn_norm.weight", PostNorm(attention, p + "post_attention_norm.weight", h.n_embd, h.eps)
        feed_forward = GatedFeedForward(i, h.n_embd, h.n_ff, activation="gelu")
        yield "ffn_norm.weight", PostNorm(feed_forward, p + "post_ffw_norm.weight", h.n_embd, h.eps)


class Gemma3(Gemma2):
    """Gemma 3, its text part: five local layers before each global one, norms on queries and keys."""

    name = "gemma3"
    hparams = Gemma3Hparams
    normed = True
    all_scaled = False
    n_layer_27b = 62
