"""The layers that families are made of."""

from .attention import Attention, Rope
from .base import Layer
from .feed_forward import GatedFeedForward, MixtureOfExperts, WithSharedExpert
from .mamba1 import Mamba1
from .mamba2 import Mamba2

__all__ = [
    "Attention",
    "GatedFeedForward",
    "Layer",
    "Mamba1",
    "Mamba2",
    "MixtureOfExperts",
    "Rope",
    "WithSharedExpert",
]
