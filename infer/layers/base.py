"""The interface of layers: a layer loads its tensors once and adds its ops to every program."""

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

import numpy as np

from hybrid.quant.ggml.errors import FormatError

from ..kernels.rows import elementwise
from ..loading.weights import Weights
from ..memory import AttentionSpec, HybridMemory, RecurrentSpec, RowsSpec
from ..program.builder import Builder, Rows
from .norm import Norm

MemorySpec = AttentionSpec | RowsSpec | RecurrentSpec
A_LOWEST = -1e30  # lowest A of a recurrence: A * log2(e) * step must stay finite


class Gate(Enum):
    """The form of attention's gates, computed from its input: heads' results are multiplied by their sigmoid."""

    HEADS = "a number for each head"
    VALUES = "a number for each value of each head"
    APART = "the same, from a matrix of their own"


class Layer(Protocol):
    """A mixer or a feed-forward part of a block: rows in (normalized), rows out (to be added to the residual).

    Its fields `layer` and `block`, and `source` of some layers, are numbers of layers. A layer whose results depend on
    its number, or on the number of layers, has a property `by_number`: the value that they depend on. One that prepares
    something for all layers before the first one has `after_inputs`: that layer.
    """

    def load(self, w: Weights) -> None:
        """Request the tensors. Raises FormatError when one is missing or has another shape."""

    def memory(self) -> tuple[MemorySpec, ...]:
        """The layer's memory per sequence."""

    def build(self, b: Builder, x: Rows, memory: HybridMemory) -> Rows: ...


@dataclass
class Sum:
    """The sum of two layers on the same rows, such as attention and a state space, or experts and a shared expert."""

    first: Layer
    second: Layer

    def load(self, w: Weights) -> None:
        self.first.load(w)
        self.second.load(w)

    def memory(self) -> tuple[MemorySpec, ...]:
        return (*self.first.memory(), *self.second.memory())

    def build(self, b: Builder, x: Rows, memory: HybridMemory) -> Rows:
        total, more = self.first.build(b, x, memory), self.second.build(b, x, memory)
        b.op(elementwise.add_rows, count=b.batch.n_tok, x=total, residual=more, n=total.n)
        return total


@dataclass
class PostNorm:
    """A layer whose result is normalized (RMS) before it is added to the residual stream. gate_factor: of the norm's
    gate; 0: it has none."""

    layer: Layer
    norm: str  # the tensor's name
    n_embd: int
    eps: float
    gate_factor: float = 0.0

    def load(self, w: Weights) -> None:
        self.layer.load(w)
        self.of_result = Norm.load(w, self.norm, self.n_embd, self.gate_factor)

    def memory(self) -> tuple[MemorySpec, ...]:
        return self.layer.memory()

    def build(self, b: Builder, x: Rows, memory: HybridMemory) -> Rows:
        return self.of_result.build(b, self.layer.build(b, x, memory), self.eps, name="post_norm")


class OwnResidual:
    """A layer with its own residual connection to the stream x."""

    def before(self, b: Builder, normed: Rows, x: Rows) -> None:
        """Called before the layer, which reads `normed`, a norm of x."""

    def behind(self, b: Builder, x: Rows, y: Rows) -> Rows | None:
        """Called with the layer's result y: returns the rows that must still be added to x, or None."""
        return y


@dataclass
class KeptNorm(OwnResidual):
    """A layer whose residual is its normalized input: x = kept norm(x) + share layer(norm(x))."""

    layer: Layer
    kept: float
    share: float = 1.0

    def load(self, w: Weights) -> None:
        self.layer.load(w)

    def memory(self) -> tuple[MemorySpec, ...]:
        return self.layer.memory()

    def build(self, b: Builder, x: Rows, memory: HybridMemory) -> Rows:
        y = self.layer.build(b, x, memory)
        if self.share != 1.0:
            b.op(elementwise.scale_rows, count=b.batch.n_tok, x=y, n=y.n, scale=float(self.share))
        return y

    def before(self, b: Builder, normed: Rows, x: Rows) -> None:
        b.op(elementwise.scaled_copy, count=b.batch.n_tok, x=normed, out=x, n=x.n, scale=float(self.kept))


@dataclass
class LayerAdapter:
    """A layer's own low-rank addition B A x to the product with a shared matrix [n_out, n_in].

    The tensors are `name`_lora_a.weight [rank, n_in] and `name`_lora_b.weight [n_out, rank]. Hu et al. 2021,
    arXiv:2106.09685
    """

    name: str
    n_out: int
    n_in: int
    rank: int

    def load(self, w: Weights) -> None:
        self.a = w.matrix(self.name + "_lora_a.weight", self.rank, self.n_in)
        self.b = w.matrix(self.name + "_lora_b.weight", self.n_out, self.rank)

    def add(self, b: Builder, x: Rows, product: Rows) -> None:
        """product += B A x"""
        more = b.matmul(b.matmul(x, self.a, "lora_a"), self.b, "lora_b")
        b.op(elementwise.add_rows, name="lora_add", count=b.batch.n_tok, x=product, residual=more, n=product.n)


def decay_logs(w: Weights, name: str, *shape: int, positive: bool = False) -> np.ndarray:
    """-exp(A_log) of recurrences, f32 of this shape, whatever dimensions of 1 the file has.

    positive: exp(A_log) is stored, and returned. Raises FormatError for the other sign, or values too large to compute
    with.
    """
    a = w.squeezed(name, *shape)
    low, high = (0.0, -A_LOWEST) if positive else (A_LOWEST, 0.0)
    if a.min() < low or a.max() > high:
        expected = "exp(A_log), which is not negative" if positive else "-exp(A_log), which is not positive"
        raise FormatError(
            f"{w.gguf.path.name}: {name} has values from {a.min():g} to {a.max():g}, expected {expected}. "
            "Convert the model again."
        )
    return a


def optional_bias(w: Weights, weight: str, n: int) -> int:
    """The address of a matrix's bias; 0 where the file has no such bias."""
    name = weight.removesuffix("weight") + "bias"
    return w.vector(name, n) if name in w else 0


def add_bias(b: Builder, x: Rows, bias: int) -> Rows:
    if bias:
        b.op(elementwise.add_rows, name="bias", count=b.batch.n_tok, x=x, residual=bias, ldresidual=0, n=x.n)
    return x
