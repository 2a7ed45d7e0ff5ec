"""Nemotron: layer norms, RoPE on half of every head, a squared ReLU without a gate. arXiv:2402.16819"""

from hybrid.quant.ggml.families.llama import LayerNormLlamaHparams

from ..kernels.attention.rope import NEOX
from .arcee import Arcee


class Nemotron(Arcee):
    """Nemotron 3 and 4, and Minitron."""

    name = "nemotron"
    hparams = LayerNormLlamaHparams
    style = NEOX
    layer_norms = True


class Jais2(Nemotron):
    """Jais 2."""

    name = "jais2"
