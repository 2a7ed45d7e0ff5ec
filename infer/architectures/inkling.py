"""Inkling: four short convolutions on a layer, attention with a bias by distance, experts. Of Thinking Machines.

llama.cpp has no such architecture; names and keys are in docs/gguf-extensions.md.
"""

from collections.abc import Iterator

from hybrid.quant.ggml.families.inkling import InklingHparams

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


class Inkling(Family):
    """Inkling. Layers without a router are dense."""

    name = "inkling"
    hparams = InklingHparams
    embedding_norm = "token_embd_norm.weight"

    def block(self, h: InklingHparams, i: int, w: Weights) -> Iterator[Part]:
        for part, layer in (("attn", self.attention(h, i, w)), ("ffn", self.feed_forward(h, i, w))):
            yield f"{part}_norm.weight", Convolved(layer, Convolution(i, part, h.n_embd, h.d_conv))

    def attention(self, h: InklingHparams, i: int, w: Weights) -> Layer:
        local = h.local[i]
        d_head, window = (h.d_head_local, h.window) if local else (h.d_head, 0)
        n_state, extent = w.gguf.info(f"blk.{i}.attn_rel_b.weight").shape
        scale = None if local or not h.period else QueryScale(h.temperature, h.period, 1, smooth=True)
        return LeaningAttention(
            i, h.n_embd, h.n_head[i], h.n_head_kv[i], d_head, scale=1 / d_head, window=window, norm=HeadNorm(h.eps),
            query_scale=scale, n_state=n_state, extent=extent, d_conv=h.d_conv,
        )  # fmt: skip

    def feed_forward(self, h: InklingHparams, i: int, w: Weights) -> Layer:
        if f"blk.{i}.ffn_gate_inp.weight" not in w:
            return GatedFeedForward(i, h.n_embd, h.n_ff)
        router = Router(
            h.n_expert, h.n_expert_used, renormalize=True, scoring=Scoring.SIGMOID, scale=h.weights_scale,
            n_shared=h.n_shared,
        )  # fmt: skip
        return MixtureOfExperts(i, h.n_embd, h.n_ff_expert, router)
