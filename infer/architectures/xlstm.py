"""xLSTM: the mLSTM and a gated feed-forward part on every layer. arXiv:2503.13427

llama.cpp has no such architecture; names and keys are in docs/gguf-extensions.md.
"""

from collections.abc import Iterator

from hybrid.quant.ggml.families.xlstm import XlstmHparams

from ..layers.feed_forward import GatedFeedForward
from ..layers.mlstm import Mlstm
from ..loading.weights import Weights
from .base import Family, Part


class Xlstm(Family):
    """xLSTM 7B and smaller models of this kind."""

    name = "xlstm"
    hparams = XlstmHparams

    def block(self, h: XlstmHparams, i: int, w: Weights) -> Iterator[Part]:
        yield "attn_norm.weight", Mlstm(i, h.n_embd, h.n_head, h.d_k, h.d_v, h.gate_cap, h.mlstm_eps, h.eps)
        yield "ffn_norm.weight", GatedFeedForward(i, h.n_embd, h.n_ff)
