"""What a family declares: its hyper-parameters and, layer by layer, what a block is made of."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar

from hybrid.quant.ggml.families.gpt2 import Gpt2Hparams
from hybrid.quant.ggml.families.hparams import AttentionHparams
from hybrid.quant.ggml.families.mamba import Mamba1Hparams
from hybrid.quant.ggml.families.mamba2 import Mamba2Hparams

from ..layers.base import Layer
from ..layers.mamba1 import Mamba1
from ..layers.mamba2 import Mamba2
from ..layers.streams import Streams
from ..loading.weights import Weights

# A part of a block and the tensor of the norm in front of it: x += layer(norm(x)); without a name, x += layer(x), or
# what a layer on streams does to x.
Part = tuple[str, Layer]


class Family(ABC):
    """One architecture of GGUF. `name` is the value of general.architecture and the prefix of its keys."""

    name: ClassVar[str]
    hparams: ClassVar[type[Any]]
    output_norm: ClassVar[str] = "output_norm.weight"  # empty: there is none
    layer_norms: ClassVar[bool] = False  # norms subtract the mean and have biases; otherwise they are RMS norms
    norm_biases: ClassVar[bool] = True  # layer norms have them
    embedding_norm: ClassVar[str] = ""  # the tensor, where the embedding is normalized too
    embedding_scale: ClassVar[str] = ""  # its weight and bias, where the embedding e becomes (e + bias) * weight
    block_scale: ClassVar[str] = ""  # a tensor of blocks that the residual stream is multiplied by behind them
    has_heads: ClassVar[bool] = False  # blocks that guess tokens ahead are like others, and run; or they are left out
    learned_positions: ClassVar[bool] = False  # position_embd has a row for every position, which is added

    def streams(self, h: Any) -> Streams | None:
        """Of a residual stream that is wider than an embedding; then all parts are layers on streams, without norms."""
        return None

    def head_streams(self, h: Any, i: int, w: Weights) -> Streams | None:
        """Of a head that guesses tokens ahead, in block `i`, whose states are all residual streams: what ends them.
        None: its states are those behind the last norm."""
        return None

    @abstractmethod
    def block(self, h: Any, i: int, w: Weights) -> Iterator[Part]:
        """The parts of block `i`, in order."""


class EncoderFamily(ABC):
    """An architecture that reads texts as a whole and makes embeddings of them."""

    name: ClassVar[str]
    hparams: ClassVar[type[Any]]

    @abstractmethod
    def block(self, h: Any, i: int, w: Weights, n_text: int) -> Iterator[Part]:
        """The parts of block `i`, each with the tensor of the norm behind it: x = norm(x + layer(x)).

        n_text: texts in a run, at most.
        """


def head_size(h: AttentionHparams | Gpt2Hparams, w: Weights, stated: int = 0) -> int:
    """`stated`: attention.key_length, 0 where the file has no such key."""
    if not stated and h.n_embd % h.n_head:
        raise h.wrong(w.gguf, "n_head", f"a divisor of embedding_length = {h.n_embd}")
    return stated or h.n_embd // h.n_head


def mamba1(h: Mamba1Hparams, i: int, norms: str = "", *, eps: float = 0.0, n_head: int = 0, leaves: str = "") -> Mamba1:
    """`eps`: of the norms on dt, B and C; 0: that of the others."""
    sizes = (h.n_embd, h.d_inner, h.d_state, h.d_conv, h.dt_rank)
    return Mamba1(i, *sizes, eps or h.eps, norms, n_head, leaves)


def mamba2(h: Mamba2Hparams, i: int, *, normed: bool = True, norm_first: bool = False) -> Mamba2:
    """Layer i; `normed`: with a norm behind its gate, or with norm_first in front of it."""
    sizes = (h.n_embd, h.d_inner, h.d_state, h.d_conv, h.n_ssm_head, h.n_group)
    limits = (h.dt_min, h.dt_max or math.inf)
    return Mamba2(i, *sizes, h.gated_eps or h.eps, limits, normed, norm_first)
