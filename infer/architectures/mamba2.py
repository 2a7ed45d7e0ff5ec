"""Mamba-2: state space duality layers only. arXiv:2405.21060"""

from collections.abc import Iterator

from hybrid.quant.ggml.families.mamba2 import Mamba2Hparams

from ..loading.weights import Weights
from .base import Family, Part, mamba2


class Mamba2(Family):
    """Mamba-2 layers only, without feed-forward parts."""

    name = "mamba2"
    hparams = Mamba2Hparams

    def block(self, h: Mamba2Hparams, i: int, w: Weights) -> Iterator[Part]:
        yield "attn_norm.weight", mamba2(h, i)
