"""Jamba: attention without positions every few layers, Mamba-1 elsewhere, experts on some layers. arXiv:2403.19887"""

from collections.abc import Iterator

from hybrid.quant.ggml.families.jamba import JambaHparams

from ..layers.attention import Attention
from ..layers.feed_forward import GatedFeedForward, MixtureOfExperts
from ..layers.router import Router
from ..loading.weights import Weights
from .base import Family, Part, head_size, mamba1


class Jamba(Family):
    """Jamba and Jamba 1.5."""

    name = "jamba"
    hparams = JambaHparams

    def block(self, h: JambaHparams, i: int, w: Weights) -> Iterator[Part]:
        if h.n_head_kv[i]:
            yield "attn_norm.weight", Attention(i, h.n_embd, h.n_head, h.n_head_kv[i], head_size(h, w))
        else:
            yield "attn_norm.weight", mamba1(h, i, "weighted")
        # no key says which layers have experts
        if f"blk.{i}.ffn_gate_inp.weight" in w:
            yield "ffn_norm.weight", MixtureOfExperts(i, h.n_embd, h.n_ff, Router(h.n_expert, h.n_expert_used))
        else:
            yield "ffn_norm.weight", GatedFeedForward(i, h.n_embd, h.n_ff)
