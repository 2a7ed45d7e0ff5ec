"""Mamba-2: state space duality layers only. arXiv:2405.21060"""

from collections.abc import Iterator
from dataclasses import dataclass

from ..hparams import Hparams, key
from ..layers import Mamba2 as Mamba2Layer
from ..weights import Weights
from .base import Part


@dataclass(frozen=True)
class Mamba2Hparams(Hparams):
    d_conv: int = key("ssm.conv_kernel", minimum=2)
    d_inner: int = key("ssm.inner_size", minimum=1)
    d_state: int = key("ssm.state_size", minimum=1)
    n_ssm_head: int = key("ssm.time_step_rank", minimum=1)
    n_group: int = key("ssm.group_count", minimum=1)
    eps: float = key("attention.layer_norm_rms_epsilon")


class Mamba2:
    name = "mamba2"
    hparams = Mamba2Hparams

    def block(self, h: Mamba2Hparams, i: int, w: Weights) -> Iterator[Part]:
        yield "attn_norm", Mamba2Layer(i, h.n_embd, h.d_inner, h.d_state, h.d_conv, h.n_ssm_head, h.n_group, h.eps)

    def eps(self, h: Mamba2Hparams) -> float:
        return h.eps
