"""Zamba2: Mamba-2, and transformer blocks that some layers share in front of it, with separate adapters for each layer.
arXiv:2411.15242

llama.cpp has no such architecture; names and keys are in docs/gguf-extensions.md.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from ..loading.weights import Weights
from .base import Family, Mamba2Hparams, Part
from .zamba import SharedHparams


@dataclass(frozen=True)
class Zamba2Hparams(SharedHparams, Mamba2Hparams):
    """Both of what it is made of."""


class Zamba2(Family):
    """Zamba2 in all sizes: n_shared blocks take turns."""

    name = "zamba2"
    hparams = Zamba2Hparams

    def block(self, h: Zamba2Hparams, i: int, w: Weights) -> Iterator[Part]:
        yield h.part(i, h.mamba2(i), fused=True)
