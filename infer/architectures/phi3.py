"""Phi-3: Llama with queries, keys and values in one matrix, gate and up in another. arXiv:2404.14219"""

from ..kernels.attention.rope import NEOX
from .llama import Llama


class Phi3(Llama):
    """Phi-3 and Phi-3.5 mini."""

    name = "phi3"
    style = NEOX
    fused = True
