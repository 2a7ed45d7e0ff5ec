"""The base of families: each declares its hyper-parameters and the layers of every block."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
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

# The tensor of a norm, and the layer after it: x += layer(norm(x)). Without a name: x += layer(x), or for a layer on
# streams, its own update of x.
Part = tuple[str, Layer]


class Family(ABC):
    """One architecture of GGUF. `name` is the value of general.architecture and the prefix of its keys."""

    name: ClassVar[str]
    hparams: ClassVar[type[Any]]
    output_norm: ClassVar[str] = "output_norm.weight"  # empty: no norm
    layer_norms: ClassVar[bool] = False  # norms subtract the mean; otherwise they are RMS norms
    norm_biases: ClassVar[bool] = True  # whether layer norms have biases
    embedding_norm: ClassVar[str] = ""  # tensor of a norm of the embedding, if it has one
    rms_of_embedding: ClassVar[bool] = False  # the embedding is divided by its root mean square
    embedding_scale: ClassVar[str] = ""  # prefix of a weight and bias: the embedding e becomes (e + bias) * weight
    block_scale: ClassVar[str] = ""  # tensor of each block that the residual stream is multiplied with after it
    has_heads: ClassVar[bool] = False  # whether blocks that guess tokens ahead can be run; otherwise they are left out
    learned_positions: ClassVar[bool] = False  # position_embd has a row for every position, which is added

    def streams(self, h: Any) -> Streams | None:
        """The residual streams, if wider than an embedding; all parts then are layers on streams, without norms."""
        return None

    def head_streams(self, h: Any, i: int, w: Weights) -> Streams | None:
        """The streams of a head that guesses tokens ahead, in block `i`, if its states are all residual streams; None:
        they are the values after the last norm."""
        return None

    def picture_blocks(self, h: Any) -> Sequence[int]:
        """The blocks before which a picture's further features are added, in the order of the features."""
        return ()

    @abstractmethod
    def block(self, h: Any, i: int, w: Weights) -> Iterator[Part]:
        """The parts of block `i`, in order."""


class EncoderFamily(ABC):
    """An architecture that reads texts as a whole and makes embeddings or scores of them."""

    name: ClassVar[str]
    hparams: ClassVar[type[Any]]
    learned_positions: ClassVar[bool] = False  # position_embd has a row for every position, which is added
    embedding_norm: ClassVar[str] = ""  # tensor of a norm of the embedding, if it has one
    layer_norms: ClassVar[bool] = True  # norms subtract the mean; otherwise they are RMS norms
    norm_biases: ClassVar[bool] = True  # whether layer norms have biases
    norms_first: ClassVar[bool] = False  # x += layer(norm(x)); otherwise x = norm(x + layer(x))
    output_norm: ClassVar[str] = ""  # tensor of the last norm, if norms are first

    def half_window(self, h: Any) -> int:
        """How many tokens on each side a token sees in layers with a window."""
        return 0

    @abstractmethod
    def block(self, h: Any, i: int, w: Weights, n_text: int) -> Iterator[Part]:
        """The parts of block `i`, each with the tensor of its norm. n_text: limit on texts in a run."""


def head_size(h: AttentionHparams | Gpt2Hparams, w: Weights, stated: int = 0) -> int:
    """Values of a head. stated: attention.key_length; 0: the file does not have it."""
    if not stated and h.n_embd % h.n_head:
        raise h.wrong(w.gguf, "n_head", f"a divisor of embedding_length = {h.n_embd}")
    return stated or h.n_embd // h.n_head


def mamba1(h: Mamba1Hparams, i: int, norms: str = "", *, eps: float = 0.0, **more: Any) -> Mamba1:
    """Mamba-1 as layer i. eps: of the norms on dt, B and C; 0: as in other norms. more: further fields."""
    sizes = (h.n_embd, h.d_inner, h.d_state, h.d_conv, h.dt_rank)
    return Mamba1(i, *sizes, eps or h.eps, norms, **more)


def mamba2(h: Mamba2Hparams, i: int, *, normed: bool = True, norm_first: bool = False) -> Mamba2:
    """Mamba-2 as layer i. normed: with a norm after its gate; norm_first: before its gate."""
    sizes = (h.n_embd, h.d_inner, h.d_state, h.d_conv, h.n_ssm_head, h.n_group)
    limits = (h.dt_min, h.dt_max or math.inf)
    return Mamba2(i, *sizes, h.gated_eps or h.eps, limits, normed, norm_first)
