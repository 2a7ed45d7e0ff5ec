"""Two parts that read the same residual stream, each after its own norm."""

from dataclasses import dataclass

from ..kernels.rows import elementwise
from ..loading.weights import Weights
from ..memory import HybridMemory
from ..program.builder import Builder, Rows
from .base import Layer, MemorySpec


@dataclass
class NormedSum:
    """first(norm1(x)) + second(norm2(x)) of the residual stream x, with layer norms.

    norms  prefixes of the norms' tensors: NAME.weight and NAME.bias
    """

    first: Layer
    second: Layer
    norms: tuple[str, str]
    n_embd: int
    eps: float

    def load(self, w: Weights) -> None:
        self.weights = [[w.vector(f"{name}.{part}", self.n_embd) for part in ("weight", "bias")] for name in self.norms]
        self.first.load(w)
        self.second.load(w)

    def memory(self) -> tuple[MemorySpec, ...]:
        return (*self.first.memory(), *self.second.memory())

    def build(self, b: Builder, x: Rows, memory: HybridMemory) -> Rows:
        total, more = (
            layer.build(b, b.norm(x, weight, self.eps, bias=bias), memory)
            for layer, (weight, bias) in zip((self.first, self.second), self.weights, strict=True)
        )
        b.op(elementwise.add_rows, count=b.batch.n_tok, x=total, residual=more, n=total.n)
        return total
