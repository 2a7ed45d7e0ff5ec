"""Mamba, and Falcon-Mamba, which normalizes dt, B and C. arXiv:2312.00752, arXiv:2410.05355"""

from collections.abc import Iterator
from dataclasses import dataclass

from ..loading.hparams import key
from ..loading.weights import Weights
from .base import Family, Mamba1Hparams, Part


@dataclass(frozen=True)
class MambaHparams(Mamba1Hparams):
    """dt_b_c_rms: norms on dt, B and C, as Falcon-Mamba has them."""

    dt_b_c_rms: bool = key("ssm.dt_b_c_rms", False)
    dt_b_c_eps: float = key("ssm.dt_b_c_rms_epsilon", 0.0)  # 0: eps; a key that only our converter writes


class Mamba(Family):
    """Mamba-1 layers only."""

    name = "mamba"
    hparams = MambaHparams

    def block(self, h: MambaHparams, i: int, w: Weights) -> Iterator[Part]:
        yield "attn_norm.weight", h.mamba1(i, "plain" if h.dt_b_c_rms else "", eps=h.dt_b_c_eps)
