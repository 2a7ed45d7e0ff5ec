"""Zamba2: Mamba-2; on some layers a shared transformer block runs before it, with separate adapters for each layer.
arXiv:2411.15242

llama.cpp has no such architecture; names and keys are in docs/gguf-extensions.md.
"""

from collections.abc import Iterator

from hybrid.quant.ggml.families.zamba import Zamba2Hparams

from ..loading.weights import Weights
from .base import Family, Part, mamba2
from .zamba import part


class Zamba2(Family):
    """Zamba2 in all sizes: n_shared shared blocks, which alternate."""

    name = "zamba2"
    hparams = Zamba2Hparams

    def block(self, h: Zamba2Hparams, i: int, w: Weights) -> Iterator[Part]:
        yield part(h, i, mamba2(h, i), fused=True)
