"""xLSTM: the mLSTM and a gated feed-forward part on every layer. arXiv:2503.13427

llama.cpp has no such architecture; names and keys are in docs/gguf-extensions.md.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from ..layers.feed_forward import GatedFeedForward
from ..layers.mlstm import Mlstm
from ..loading.hparams import Hparams, key
from ..loading.weights import Weights
from .base import Family, Part


@dataclass(frozen=True)
class XlstmHparams(Hparams):
    """Of the mLSTM and the feed-forward part."""

    n_ff: int = key("feed_forward_length", minimum=1)
    n_head: int = key("mlstm.head_count", minimum=1)
    d_k: int = key("mlstm.key_length", minimum=1)
    d_v: int = key("mlstm.value_length", minimum=1)
    gate_cap: float = key("mlstm.gate_softcapping", minimum=1e-3)
    mlstm_eps: float = key("mlstm.epsilon")
    cap: float = key("final_logit_softcapping", 0.0)

    @property
    def logit_cap(self) -> float:
        return self.cap


class Xlstm(Family):
    """xLSTM 7B and smaller ones of its kind."""

    name = "xlstm"
    hparams = XlstmHparams

    def block(self, h: XlstmHparams, i: int, w: Weights) -> Iterator[Part]:
        yield "attn_norm.weight", Mlstm(i, h.n_embd, h.n_head, h.d_k, h.d_v, h.gate_cap, h.mlstm_eps, h.eps)
        yield "ffn_norm.weight", GatedFeedForward(i, h.n_embd, h.n_ff)
