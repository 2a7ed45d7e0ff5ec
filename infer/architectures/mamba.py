"""Mamba, and Falcon-Mamba, which normalizes dt, B and C. arXiv:2312.00752, arXiv:2410.05355"""

from collections.abc import Iterator
from dataclasses import dataclass

from ..hparams import Hparams, key
from ..layers import Mamba1
from ..weights import Weights
from .base import Family, Part


@dataclass(frozen=True)
class MambaHparams(Hparams):
    d_conv: int = key("ssm.conv_kernel", minimum=2)
    d_inner: int = key("ssm.inner_size", minimum=1)
    d_state: int = key("ssm.state_size", minimum=1)
    dt_rank: int = key("ssm.time_step_rank", minimum=1)
    dt_b_c_rms: bool = key("ssm.dt_b_c_rms", False)
    dt_b_c_eps: float = key("ssm.dt_b_c_rms_epsilon", 0.0)  # 0: eps; a key that only our converter writes


class Mamba(Family):
    name = "mamba"
    hparams = MambaHparams

    def block(self, h: MambaHparams, i: int, w: Weights) -> Iterator[Part]:
        norms = "plain" if h.dt_b_c_rms else ""
        eps = h.dt_b_c_eps or h.eps
        yield "attn_norm.weight", Mamba1(i, h.n_embd, h.d_inner, h.d_state, h.d_conv, h.dt_rank, eps, norms)
