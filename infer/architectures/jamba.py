"""Jamba: attention without positions every few layers, Mamba-1 elsewhere, experts on some layers. arXiv:2403.19887"""

from collections.abc import Iterator
from dataclasses import dataclass

from ..layers.attention import Attention
from ..layers.feed_forward import GatedFeedForward, MixtureOfExperts
from ..loading.hparams import key
from ..loading.weights import Weights
from .base import AttentionHparams, Family, Mamba1Hparams, Part


@dataclass(frozen=True)
class JambaHparams(AttentionHparams, Mamba1Hparams):
    """A layer without heads of keys is Mamba-1; n_ff is also the width of an expert."""

    n_ff: int = key("feed_forward_length", minimum=1)
    n_expert: int = key("expert_count", 0)
    n_expert_used: int = key("expert_used_count", 0)


class Jamba(Family):
    """Jamba and Jamba 1.5."""

    name = "jamba"
    hparams = JambaHparams

    def block(self, h: JambaHparams, i: int, w: Weights) -> Iterator[Part]:
        if h.n_head_kv[i]:
            yield "attn_norm.weight", Attention(i, h.n_embd, h.n_head, h.n_head_kv[i], h.head_size(w))
        else:
            yield "attn_norm.weight", h.mamba1(i, "weighted")
        # no key says which layers have experts: a router does
        if f"blk.{i}.ffn_gate_inp.weight" in w:
            yield "ffn_norm.weight", MixtureOfExperts(i, h.n_embd, h.n_ff, h.n_expert, h.n_expert_used)
        else:
            yield "ffn_norm.weight", GatedFeedForward(i, h.n_embd, h.n_ff)
