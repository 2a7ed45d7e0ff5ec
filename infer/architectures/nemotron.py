"""Nemotron: layer norms, RoPE on half of every head, a squared ReLU without a gate. arXiv:2402.16819"""

from dataclasses import dataclass

from ..kernels.attention.rope import NEOX
from ..loading.hparams import key
from .arcee import Arcee
from .llama import LlamaHparams


@dataclass(frozen=True)
class NemotronHparams(LlamaHparams):
    eps: float = key("attention.layer_norm_epsilon")


class Nemotron(Arcee):
    """Nemotron 3 and 4, and Minitron."""

    name = "nemotron"
    hparams = NemotronHparams
    style = NEOX
    layer_norms = True
