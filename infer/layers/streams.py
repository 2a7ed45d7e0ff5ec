"""A residual stream that is wider than an embedding: several streams side by side, which a family's layers read from
and write to in their own way (hyper-connections, arXiv:2409.19606, and their kin)."""

from abc import ABC, abstractmethod

from ..kernels.rows import elementwise
from ..loading.weights import Weights
from ..memory import HybridMemory
from ..program.builder import Builder, Columns, Rows
from .base import MemorySpec


class OnStreams(ABC):
    """A part of a block that reads and writes the whole residual stream itself."""

    @abstractmethod
    def load(self, w: Weights) -> None:
        """As `Layer.load`."""

    @abstractmethod
    def memory(self) -> tuple[MemorySpec, ...]:
        """As `Layer.memory`."""

    @abstractmethod
    def write(self, b: Builder, x: Rows, memory: HybridMemory) -> None:
        """x: rows of all streams, changed in place."""

    def build(self, b: Builder, x: Rows, memory: HybridMemory) -> Rows:
        """As `Layer.build`; x is the stream itself, and nothing is left to be added to it."""
        self.write(b, x, memory)
        b.products.forget(x)
        return x


class Streams(ABC):
    """What a family makes of `n` streams of n_embd values before its first block and behind its last."""

    def __init__(self, n: int, n_embd: int) -> None:
        self.n, self.n_embd = n, n_embd

    def load(self, w: Weights) -> None:  # noqa: B027  most have no tensors
        """Ask for the tensors."""

    def begin(self, b: Builder, x: Rows) -> None:
        """x: rows of all streams, of which the first holds the embedding: it is copied into the others."""
        for i in range(1, self.n):
            stream = x.columns(i * self.n_embd, self.n_embd)
            b.op(elementwise.copy_rows, name="streams", count=b.batch.n_tok, x=x, out=stream, n=self.n_embd)

    @abstractmethod
    def end(self, b: Builder, x: Rows, columns: Columns, count: int) -> Rows:
        """The rows [n_embd] that the final norm reads, or the head where there is no norm.

        x        rows of all streams, of the tokens that logits are wanted of
        columns  these rows as columns of a product
        count    address of their number
        """
