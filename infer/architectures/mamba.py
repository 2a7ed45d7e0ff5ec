"""Mamba, and Falcon-Mamba, which normalizes dt, B and C. arXiv:2312.00752, arXiv:2410.05355"""

from collections.abc import Iterator

from hybrid.quant.ggml.families.mamba import MambaHparams

from ..loading.weights import Weights
from .base import Family, Part, mamba1


class Mamba(Family):
    """Mamba-1 layers only."""

    name = "mamba"
    hparams = MambaHparams

    def block(self, h: MambaHparams, i: int, w: Weights) -> Iterator[Part]:
        yield "attn_norm.weight", mamba1(h, i, "plain" if h.dt_b_c_rms else "", eps=h.dt_b_c_eps)
