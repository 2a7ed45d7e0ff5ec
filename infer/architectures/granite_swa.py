"""Granite with windows: Granite 3 with a sink in every head, windows on three layers of four. Of ibm-granite."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from hybrid.quant.ggml.families.granite_swa import GraniteSwaHparams

from ..loading.weights import Weights
from .base import Part
from .granite import Granite


class GraniteSwa(Granite):
    """Granite with windows, dense. Some layers may have no RoPE."""

    name = "granite_swa"
    hparams = GraniteSwaHparams

    def block(self, h: Any, i: int, w: Weights) -> Iterator[Part]:
        (norm, attention), feed_forward = super().block(h, i, w)
        window = h.window if h.local[i] else 0
        more = {} if h.turned[i] else {"rope": None}
        yield norm, replace(attention, window=window, sinks=True, **more)  # type: ignore[type-var]
        yield feed_forward
