"""Several residual streams side by side instead of one, which layers read and write in their own way.

Hyper-connections, arXiv:2409.19606, and similar methods.
"""

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
        """See `Layer.load`."""

    @abstractmethod
    def memory(self) -> tuple[MemorySpec, ...]:
        """See `Layer.memory`."""

    @abstractmethod
    def write(self, b: Builder, x: Rows, memory: HybridMemory) -> None:
        """Change x, the rows of all streams, in place."""

    def build(self, b: Builder, x: Rows, memory: HybridMemory) -> Rows:
        """Like `Layer.build`, but x is the stream itself, and nothing remains to be added to it."""
        self.write(b, x, memory)
        b.products.forget(x)
        return x


class Streams(ABC):
    """How a family fills its `n` streams of n_embd values before the first block, and joins them after the last."""

    def __init__(self, n: int, n_embd: int) -> None:
        self.n, self.n_embd = n, n_embd

    def load(self, w: Weights) -> None:  # noqa: B027  most have no tensors
        """Request the tensors."""

    def begin(self, b: Builder, x: Rows) -> None:
        """Copy the embedding, in the first stream of x, into the other streams."""
        for i in range(1, self.n):
            stream = x.columns(i * self.n_embd, self.n_embd)
            b.op(elementwise.copy_rows, name="streams", count=b.batch.n_tok, x=x, out=stream, n=self.n_embd)

    @abstractmethod
    def end(self, b: Builder, x: Rows, columns: Columns, count: int) -> Rows:
        """The rows [n_embd] that the final norm reads (or the output matrix, where there is no norm).

        x        rows of all streams, of the output tokens
        columns  these rows as columns of a product
        count    address of their number
        """


class OneStream(Streams):
    """The residual stream of other models, for a head whose states it is."""

    def __init__(self, n_embd: int) -> None:
        super().__init__(1, n_embd)

    def end(self, b: Builder, x: Rows, columns: Columns, count: int) -> Rows:
        return x
