"""Arcee: Llama with a squared ReLU instead of a gate. Of Arcee AI."""

from typing import Any

from ..layers.base import Layer
from ..layers.feed_forward import FeedForward
from ..loading.weights import Weights
from .llama import Llama


class Arcee(Llama):
    """AFM."""

    name = "arcee"

    def feed_forward(self, h: Any, i: int, w: Weights) -> Layer:
        return FeedForward(i, h.n_embd, h.n_ff)
