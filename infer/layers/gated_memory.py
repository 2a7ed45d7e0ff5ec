"""The gated memory unit: an earlier layer's scan output, gated by the token. Ren et al. 2025, arXiv:2507.06607"""

from dataclasses import dataclass

from ..kernels.rows import elementwise
from ..loading.weights import Weights
from ..memory import HybridMemory
from ..program.builder import Builder, Rows
from .base import MemorySpec, add_bias, optional_bias


@dataclass
class GatedMemoryUnit:
    """out(m * silu(in(x))): m are the d_inner values that a layer left as `source` (`Mamba1.leaves`) for the token.

    Nothing is kept from one token to the next.
    """

    layer: int
    n_embd: int
    d_inner: int
    source: str

    def load(self, w: Weights) -> None:
        p = f"blk.{self.layer}.gmu_"
        self.w_in = w.matrix(p + "in.weight", self.d_inner, self.n_embd)
        self.w_out = w.matrix(p + "out.weight", self.n_embd, self.d_inner)
        self.bias_in = optional_bias(w, p + "in.weight", self.d_inner)
        self.bias_out = optional_bias(w, p + "out.weight", self.n_embd)

    def memory(self) -> tuple[MemorySpec, ...]:
        return ()

    def build(self, b: Builder, x: Rows, memory: HybridMemory) -> Rows:
        gate = add_bias(b, b.matmul(x, self.w_in, "gmu_in"), self.bias_in)
        b.op(elementwise.swiglu, count=b.batch.n_tok, gate=gate, up=b.named[self.source], out=gate, n=gate.n)
        return add_bias(b, b.matmul(gate, self.w_out, "gmu_out"), self.bias_out)
