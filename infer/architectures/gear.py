"""Opt.Gear: a Gemma 3 with gated short convolutions of keys and values instead of attention on most layers.
arXiv:2608.01034"""

from collections.abc import Iterator
from typing import Any

from hybrid.quant.ggml.families.gear import GearHparams

from ..layers.conv_mixer import ConvMixer
from ..loading.weights import Weights
from .base import Part, head_size
from .gemma import Gemma3, parts_around


class Gear(Gemma3):
    """Opt.Gear."""

    name = "gear"
    hparams = GearHparams
    together = False
    n_layer_27b = 0

    def block(self, h: Any, i: int, w: Weights) -> Iterator[Part]:
        if h.n_head_kv[i]:
            yield from super().block(h, i, w)
        else:
            d_head = head_size(h, w, h.d_head)
            yield from parts_around(h, i, ConvMixer(i, h.n_embd, h.n_head, h.n_kv, d_head, h.d_conv, h.eps))
