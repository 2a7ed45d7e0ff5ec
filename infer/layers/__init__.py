"""The layers that families are made of."""

from .attention import Attention, Rope
from .base import Layer
from .feed_forward import GatedFeedForward, MixtureOfExperts
from .mamba1 import Mamba1

__all__ = ["Attention", "GatedFeedForward", "Layer", "Mamba1", "MixtureOfExperts", "Rope"]
