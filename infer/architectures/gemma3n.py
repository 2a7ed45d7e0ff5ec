"""Gemma 3n (text): residual streams, of which layers read one; embeddings for every layer, sparse gates. Of Google."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from hybrid.quant.ggml.families.gemma3n import Gemma3nHparams

from ..kernels.attention.rope import NEOX
from ..layers.altup import AltUpBlock, AltUpSizes, AltUpStreams, FirstOnStreams, SparseFeedForward
from ..layers.attention import Attention, Rope
from ..layers.base import PostNorm
from ..layers.feed_forward import GatedFeedForward
from ..layers.per_layer_inputs import PerLayerGate, PerLayerInputs
from ..loading.weights import Weights
from .base import Family, Part
from .kv_sharing import sharing_attention
from .rope import rope_of

SPARSITY = "gemma3n.activation_sparsity_scale"
# llama.cpp's fixed values, used here if the file has none: the number of sparse first layers, and their threshold.
USUAL_LAYERS, USUAL_DEVIATIONS = 10, 1.6448533535003662


def sizes_of(h: Gemma3nHparams) -> AltUpSizes:
    return AltUpSizes(h.n_embd, h.n_stream, h.active, h.eps)


class Gemma3n(Family):
    """Gemma 3n."""

    name = "gemma3n"
    hparams = Gemma3nHparams

    def streams(self, h: Any) -> AltUpStreams:
        return AltUpStreams(sizes_of(h))

    def block(self, h: Gemma3nHparams, i: int, w: Weights) -> Iterator[Part]:
        p = f"blk.{i}."
        attention = PostNorm(self._attention(h, i, w), p + "post_attention_norm.weight", h.n_embd, h.eps)
        second = PostNorm(self._feed_forward(h, i, w), p + "post_ffw_norm.weight", h.n_embd, h.eps)
        gate = PerLayerGate(i, h.n_embd, h.n_per_layer, h.eps)
        block = AltUpBlock(i, attention, second, gate, sizes_of(h))
        if i == 0:
            yield "", FirstOnStreams(PerLayerInputs(block, h.n_embd, h.n_per_layer, h.n_layer, h.eps))
        else:
            yield "", block

    def _attention(self, h: Gemma3nHparams, i: int, w: Weights) -> Attention:
        rope = Rope(h.d_head, h.freq_base_local, NEOX) if h.local[i] else rope_of(h, w, h.d_head, NEOX)
        return sharing_attention(h, i, w, h.d_head, rope)

    def _feed_forward(self, h: Gemma3nHparams, i: int, w: Weights) -> GatedFeedForward:
        deviations = _deviations(h, w)[i]
        if math.isinf(deviations):
            return GatedFeedForward(i, h.n_embd, h.n_ff[i], activation="gelu")
        return SparseFeedForward(i, h.n_embd, h.n_ff[i], activation="gelu", deviations=deviations)


def _deviations(h: Gemma3nHparams, w: Weights) -> list[float]:
    """For each layer, standard deviations above the mean that a gate must have to count; -inf: all count."""
    stated = w.gguf.get(SPARSITY, None)
    if stated is None:
        return [USUAL_DEVIATIONS if i < USUAL_LAYERS else -math.inf for i in range(h.n_layer)]
    floats = isinstance(stated, np.ndarray) and stated.dtype.kind == "f" and len(stated) == h.n_layer
    if not floats or np.isnan(stated).any() or (stated == math.inf).any():
        raise w.wrong(
            "activation_sparsity_scale", stated, f"{h.n_layer} numbers, or -inf for layers that are not sparse"
        )
    return [float(x) for x in stated]
