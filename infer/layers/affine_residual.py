"""A residual connection that shifts and scales both the stream and the layer's result, channel by channel."""

from dataclasses import dataclass

from ..kernels.rows.affine import affine_rows
from ..loading.weights import Weights
from ..memory import HybridMemory
from ..program.builder import Builder, Rows
from .base import Layer, MemorySpec, OwnResidual


@dataclass
class AffineResidual(OwnResidual):
    """x = (x + b) * w + (y + c) * v: x is the residual stream of n_embd values, y the result of `layer`.

    name  of the tensors: `name`_residual_scale.{weight,bias} are w and b, `name`_out_scale.{weight,bias} v and c
    """

    layer: Layer
    name: str
    n_embd: int

    def load(self, w: Weights) -> None:
        self.layer.load(w)
        self.stream, self.result = (
            [w.vector(f"{self.name}_{of}_scale.{part}", self.n_embd) for part in ("weight", "bias")]
            for of in ("residual", "out")
        )

    def memory(self) -> tuple[MemorySpec, ...]:
        return self.layer.memory()

    def build(self, b: Builder, x: Rows, memory: HybridMemory) -> Rows:
        return self.layer.build(b, x, memory)

    def behind(self, b: Builder, x: Rows, y: Rows) -> None:
        b.op(
            affine_rows, name="residual", count=b.batch.n_tok, x=x, weight=self.stream[0], bias=self.stream[1], n=x.n,
            more=y, more_weight=self.result[0], more_bias=self.result[1],
        )  # fmt: skip
