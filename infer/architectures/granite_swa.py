"""Granite with windows: Granite 3 with a sink in every head, windows on three layers of four. Of ibm-granite."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from hybrid.quant.ggml.families.granite_swa import GraniteSwaHparams

from ..layers.base import Sum
from ..layers.feed_forward import GatedFeedForward, MixtureOfExperts
from ..layers.router import Router
from ..loading.weights import Weights
from .base import Part
from .granite import Granite


class GraniteSwa(Granite):
    """Granite with windows, dense or with experts. Some layers may have no RoPE."""

    name = "granite_swa"
    hparams = GraniteSwaHparams

    def block(self, h: Any, i: int, w: Weights) -> Iterator[Part]:
        (norm, attention), feed_forward = super().block(h, i, w)
        window = h.window if h.local[i] else 0
        more = {} if h.turned[i] else {"rope": None}
        yield norm, replace(attention, window=window, sinks=True, **more)  # type: ignore[type-var]
        yield _experts(h, i, w) if h.n_expert else feed_forward


def _experts(h: Any, i: int, w: Weights) -> Part:
    """Experts, and the shared one if there is one; gate and up are one matrix."""
    router, apart = Router(h.n_expert, h.n_expert_used, renormalize=True), f"blk.{i}.ffn_gate_exps.weight" in w
    experts = MixtureOfExperts(i, h.n_embd, h.n_ff, router, fused=not apart)
    shared = GatedFeedForward(i, h.n_embd, h.n_ff_shared, "_shexp", fused=True)
    return "ffn_norm.weight", Sum(experts, shared) if h.n_ff_shared else experts
