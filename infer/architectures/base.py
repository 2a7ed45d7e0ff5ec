"""What a family declares: its hyper-parameters and, layer by layer, what a block is made of."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from ..layers.base import Layer
from ..layers.mamba1 import Mamba1
from ..layers.mamba2 import Mamba2
from ..layers.streams import Streams
from ..loading.hparams import Hparams, key
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


@dataclass(frozen=True)
class AttentionHparams(Hparams):
    """Of a model with attention on some layers or all."""

    n_head: int = key("attention.head_count", minimum=1)
    n_head_kv: tuple[int, ...] = key("attention.head_count_kv", per_layer=True)  # 0 marks a layer without attention

    def head_size(self, w: Weights, stated: int = 0) -> int:
        """`stated`: attention.key_length, 0 where the file has no such key."""
        if not stated and self.n_embd % self.n_head:
            raise w.wrong("attention.head_count", self.n_head, f"a divisor of embedding_length = {self.n_embd}")
        return stated or self.n_embd // self.n_head


@dataclass(frozen=True)
class Mamba1Hparams(Hparams):
    """Of a model with Mamba-1 on some layers or all."""

    d_conv: int = key("ssm.conv_kernel", minimum=2)
    d_inner: int = key("ssm.inner_size", minimum=1)
    d_state: int = key("ssm.state_size", minimum=1)
    dt_rank: int = key("ssm.time_step_rank", minimum=1)

    def mamba1(self, i: int, norms: str = "", *, eps: float = 0.0, n_head: int = 0, leaves: str = "") -> Mamba1:
        """`eps`: of the norms on dt, B and C; 0: that of the others."""
        sizes = (self.n_embd, self.d_inner, self.d_state, self.d_conv, self.dt_rank)
        return Mamba1(i, *sizes, eps or self.eps, norms, n_head, leaves)


@dataclass(frozen=True)
class Mamba2Hparams(Hparams):
    """Of a model with Mamba-2 on some layers or all."""

    d_conv: int = key("ssm.conv_kernel", minimum=2)
    d_inner: int = key("ssm.inner_size", minimum=1)
    d_state: int = key("ssm.state_size", minimum=1)
    n_ssm_head: int = key("ssm.time_step_rank", minimum=1)
    n_group: int = key("ssm.group_count", minimum=1)
    # keys that only our converter writes: limits of the step size, and the norm's epsilon where it differs
    dt_min: float = key("ssm.time_step_min", 0.0)
    dt_max: float = key("ssm.time_step_max", 0.0)  # 0: none
    gated_eps: float = key("ssm.norm_rms_epsilon", 0.0)  # 0: eps

    def mamba2(self, i: int, *, normed: bool = True, norm_first: bool = False) -> Mamba2:
        """Layer i; `normed`: with a norm behind its gate, or with norm_first in front of it."""
        sizes = (self.n_embd, self.d_inner, self.d_state, self.d_conv, self.n_ssm_head, self.n_group)
        limits = (self.dt_min, self.dt_max or math.inf)
        return Mamba2(i, *sizes, self.gated_eps or self.eps, limits, normed, norm_first)
