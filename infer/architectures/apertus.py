"""Apertus: Llama with norms on heads of queries and keys and xIELU instead of a gate. arXiv:2509.14233"""

import math
from typing import Any

from hybrid.quant.ggml.families.apertus import ApertusHparams

from ..kernels.attention.rope import NEOX
from ..kernels.rows.xielu import xielu
from ..layers.base import Layer
from ..layers.feed_forward import FeedForward
from ..layers.head_norm import NormWeights
from ..loading.weights import Weights
from .llama import Llama


class Apertus(Llama):
    """Apertus."""

    name = "apertus"
    hparams = ApertusHparams
    style = NEOX
    normed = NormWeights.SHARED

    def feed_forward(self, h: Any, i: int, w: Weights) -> Layer:
        if h.least[i] > 0:
            raise w.wrong("xielu.eps", h.least[i], "no positive number")
        negative = h.beta[i] + _softplus(h.alpha_n[i])
        constants = {
            "positive": _softplus(h.alpha_p[i]), "negative": negative, "linear": h.beta[i], "least": h.least[i],
        }  # fmt: skip
        return FeedForward(i, h.n_embd, h.n_ff, act=xielu, constants=constants)


def _softplus(x: float) -> float:
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))
