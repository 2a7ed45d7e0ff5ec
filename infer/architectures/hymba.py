"""Hymba: attention and Mamba-1 side by side on every layer, after a prefix of learned rows. arXiv:2411.13676

llama.cpp has no such architecture; names and keys are in docs/gguf-extensions.md.
"""

import math
from collections.abc import Iterator
from typing import Any

from hybrid.quant.ggml.families.hymba import HymbaHparams

from ..kernels.attention.kv import PAGE
from ..kernels.attention.rope import NEOX
from ..layers.attention import Attention
from ..layers.feed_forward import GatedFeedForward
from ..layers.mean_of_norms import MeanOfNorms
from ..layers.wide_values import BorrowedWide, WideValues
from ..loading.weights import Weights
from .base import Family, Part, mamba1
from .rope import rope_of


class Hymba(Family):
    """Hymba-1.5B."""

    name = "hymba"
    hparams = HymbaHparams

    def block(self, h: HymbaHparams, i: int, w: Weights) -> Iterator[Part]:
        p = f"blk.{i}."
        mixers = self._attention(h, i, w), mamba1(h, i, "weighted", bare=True)
        norms = p + "attn_out_norm.weight", p + "ssm_out_norm.weight"
        yield "attn_norm.weight", MeanOfNorms(*mixers, norms, p + "ssm_out.weight", h.d_inner, h.n_embd, h.eps)
        yield "ffn_norm.weight", GatedFeedForward(i, h.n_embd, h.n_ff)

    def _attention(self, h: HymbaHparams, i: int, w: Weights) -> Attention:
        source, n_kv = i - h.back[i], h.n_head_kv[i]
        if h.n_prefix % PAGE:
            raise h.wrong(w.gguf, "n_prefix", f"a multiple of {PAGE}")
        if h.n_head * h.d_value != h.d_inner:
            raise h.wrong(w.gguf, "d_value", f"ssm.inner_size = {h.d_inner} divided by the {h.n_head} heads")
        if source < 0 or h.back[source] or h.local[source] != h.local[i] or h.n_head_kv[source] != n_kv:
            expected = f"for layer {i} the way to one that keeps keys and values, with the same window and heads"
            raise h.wrong(w.gguf, "back", expected, h.back[i])
        sizes: dict[str, Any] = {
            "d_head": max(h.d_head, h.d_value), "n_key": h.d_head, "d_value": h.d_value, "bare": True,
            "rope": rope_of(h, w, h.d_head, NEOX), "scale": 1 / math.sqrt(h.d_head), "prefix": h.n_prefix,
            "window": h.window if h.local[i] else 0,
        }  # fmt: skip
        if source == i:
            return WideValues(i, h.n_embd, h.n_head, n_kv, **sizes)
        return BorrowedWide(source, h.n_embd, h.n_head, n_kv, block=i, **sizes)
