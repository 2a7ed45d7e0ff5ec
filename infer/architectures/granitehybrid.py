"""Granite 4 H: Mamba-2 and some attention, dense or with experts beside a shared one. Of ibm-granite."""

from collections.abc import Iterator
from dataclasses import dataclass

from ..hparams import Scales, key
from ..layers import Attention, GatedFeedForward, MixtureOfExperts, Rope, Sum
from ..weights import Weights
from .base import AttentionHparams, Family, Mamba2Hparams, Part


@dataclass(frozen=True)
class GraniteHybridHparams(AttentionHparams, Mamba2Hparams):
    n_ff: int = key("feed_forward_length", minimum=1)
    n_expert: int = key("expert_count", 0)
    n_expert_used: int = key("expert_used_count", 0)
    n_ff_shared: int = key("expert_shared_feed_forward_length", 0)
    # of these, 0 stands for "none", as in llama.cpp
    embedding_scale: float = key("embedding_scale", 0.0)
    residual_scale: float = key("residual_scale", 0.0)
    logit_scale: float = key("logit_scale", 0.0)
    attention_scale: float = key("attention.scale", 0.0)
    uses_rope: bool = key("rope.scaling.finetuned", True)  # llama.cpp took a key that was there
    freq_base: float = key("rope.freq_base", 10000.0, minimum=1)
    n_rot: int = key("rope.dimension_count", 0)

    @property
    def scales(self) -> Scales:
        return Scales(self.embedding_scale or 1.0, self.residual_scale or 1.0, self.logit_scale or 1.0)


class GraniteHybrid(Family):
    name = "granitehybrid"
    hparams = GraniteHybridHparams

    def block(self, h: GraniteHybridHparams, i: int, w: Weights) -> Iterator[Part]:
        if h.n_head_kv[i]:
            d_head = h.head_size(w)
            rope = Rope(h.n_rot or d_head, h.freq_base) if h.uses_rope else None
            yield "attn_norm.weight", Attention(i, h.n_embd, h.n_head, h.n_head_kv[i], d_head, rope, h.attention_scale)
        else:
            yield "attn_norm.weight", h.mamba2(i)
        if not h.n_expert:
            yield "ffn_norm.weight", GatedFeedForward(i, h.n_embd, h.n_ff)
            return
        experts = MixtureOfExperts(i, h.n_embd, h.n_ff, h.n_expert, h.n_expert_used, renormalize=True)
        if h.n_ff_shared:
            yield "ffn_norm.weight", Sum(experts, GatedFeedForward(i, h.n_embd, h.n_ff_shared, "_shexp"))
        else:
            yield "ffn_norm.weight", experts
