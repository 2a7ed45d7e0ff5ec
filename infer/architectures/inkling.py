"""Inkling: four short convolutions on a layer, attention with a bias by distance, experts. Of Thinking Machines.

llama.cpp has no such architecture; names and keys are in docs/gguf-extensions.md.
"""

from collections.abc import Iterator
from typing import Any

from hybrid.quant.ggml.families.inkling import InklingHparams, LeaningHparams

from ..kernels.rows.moe import Scoring
from ..layers.base import Layer
from ..layers.convolved import Convolution, Convolved
from ..layers.feed_forward import GatedFeedForward, MixtureOfExperts
from ..layers.head_norm import HeadNorm
from ..layers.leaning_attention import LeaningAttention
from ..layers.query_scale import QueryScale
from ..layers.router import Router
from ..loading.weights import Weights
from .base import Family, Part


def leaning(h: LeaningHparams, i: int, w: Weights, block: int = -1) -> dict[str, Any]:
    """Fields of the attention of layer i. block: the layer whose weights it uses; -1: its own."""
    local = h.local[i]
    n_state, extent = w.gguf.info(f"blk.{i if block < 0 else block}.attn_rel_b.weight").shape
    scale = None if local or not h.period else QueryScale(h.temperature, h.period, 1, smooth=True)
    return {
        "layer": i, "n_embd": h.n_embd, "n_head": h.n_head[i], "n_kv": h.n_head_kv[i],
        "d_head": h.d_head_local if local else h.d_head, "window": h.window if local else 0, "query_scale": scale,
        "n_state": n_state, "extent": extent, "d_conv": h.d_conv, "block": block,
    }  # fmt: skip


class Inkling(Family):
    """Inkling. Layers without a router are dense."""

    name = "inkling"
    hparams = InklingHparams
    embedding_norm = "token_embd_norm.weight"

    def block(self, h: InklingHparams, i: int, w: Weights) -> Iterator[Part]:
        for part, layer in (("attn", self.attention(h, i, w)), ("ffn", self.feed_forward(h, i, w))):
            yield f"{part}_norm.weight", Convolved(layer, Convolution(i, part, h.n_embd, h.d_conv))

    def attention(self, h: InklingHparams, i: int, w: Weights) -> Layer:
        fields = leaning(h, i, w)
        return LeaningAttention(**fields, scale=1 / fields["d_head"], norm=HeadNorm(h.eps))

    def feed_forward(self, h: InklingHparams, i: int, w: Weights) -> Layer:
        if f"blk.{i}.ffn_gate_inp.weight" not in w:
            return GatedFeedForward(i, h.n_embd, h.n_ff)
        router = Router(
            h.n_expert, h.n_expert_used, renormalize=True, scoring=Scoring.SIGMOID, scale=h.weights_scale,
            n_shared=h.n_shared,
        )  # fmt: skip
        return MixtureOfExperts(i, h.n_embd, h.n_ff_expert, router)
