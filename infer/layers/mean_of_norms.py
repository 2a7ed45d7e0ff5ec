"""Two mixers side by side whose results are normalized, averaged and projected together. Dong et al. 2024,
arXiv:2411.13676, section 2.1"""

from dataclasses import dataclass

import numpy as np

from ..kernels.rows import elementwise
from ..loading.weights import Weights
from ..memory import HybridMemory
from ..program.builder import Builder, Rows
from .base import Layer, MemorySpec, add_bias, optional_bias


@dataclass
class MeanOfNorms:
    """out((norm1(first(x)) + norm2(second(x))) / 2), with RMS norms; both layers return n values per token.

    norms  names of their weights
    out    name of the matrix [n_embd, n]
    """

    first: Layer
    second: Layer
    norms: tuple[str, str]
    out: str
    n: int
    n_embd: int
    eps: float

    def load(self, w: Weights) -> None:
        self.first.load(w)
        self.second.load(w)
        half = np.float32(0.5)
        self.weights = [w.vector(name, self.n, lambda x: x * half) for name in self.norms]
        self.w_out = w.matrix(self.out, self.n_embd, self.n)
        self.bias = optional_bias(w, self.out, self.n_embd)

    def memory(self) -> tuple[MemorySpec, ...]:
        return (*self.first.memory(), *self.second.memory())

    def build(self, b: Builder, x: Rows, memory: HybridMemory) -> Rows:
        total, more = (
            b.norm(layer.build(b, x, memory), weight, self.eps, name="mean_norm")
            for layer, weight in zip((self.first, self.second), self.weights, strict=True)
        )
        b.op(elementwise.add_rows, name="mean", count=b.batch.n_tok, x=total, residual=more, n=total.n)
        return add_bias(b, b.matmul(total, self.w_out, "mean_out"), self.bias)
