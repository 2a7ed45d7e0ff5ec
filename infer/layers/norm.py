"""Norms with their weights, and the gates that the norms of some models have."""

from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from ..kernels.rows import elementwise
from ..kernels.rows.gated_streams import silu_rows
from ..loading.weights import Weights
from ..program.builder import Builder, Columns, Rows, Weight


@dataclass(frozen=True)
class NormGate:
    """The gate of a norm: the norm's result y becomes factor * sigmoid(down(silu(up(y)))) * y. Of GigaChat 3.5.

    up    [rank, n], a tensor named as the norm's weight, with _gate_up
    down  [n, rank], with _gate_down
    """

    up: Weight
    down: Weight
    factor: float

    @classmethod
    def load(cls, w: Weights, norm: str, n: int, factor: float) -> Self:
        """The gate of a norm of n values; norm: name of the norm's weight."""
        up, down = (f"{norm.removesuffix('.weight')}_gate_{part}.weight" for part in ("up", "down"))
        rank = w.gguf.info(up).shape[0]
        return cls(w.matrix(up, rank, n), w.matrix(down, n, rank), factor)

    def build(self, b: Builder, y: Rows, outputs: bool, out: Rows | None = None) -> Rows:
        """outputs: y has only the rows for which logits are wanted. out: where the result is written; None: new
        rows. It is never y, whose packed columns may be in use."""
        out = out or b.rows(y.n)
        count, columns = b.batch.n_tok, b.tokens
        if outputs:
            count, columns = b.batch.n_out, Columns(b.batch.all_outputs, b.capacity, of=b.batch.out_index)
        low = b.matmul(y, self.up, "norm_gate_up", columns)
        b.op(silu_rows, name="norm_gate", count=count, x=low, n=low.n)
        gate = b.matmul(low, self.down, "norm_gate_down", columns)
        b.op(
            elementwise.gate_rows, name="norm_gate", count=count, x=y, gate=gate, n=y.n, out=out,
            scale=float(self.factor),
        )  # fmt: skip
        return out


class Norm(NamedTuple):
    """A norm. weight, bias: addresses of its vectors; without a bias it is an RMS norm. gate: the gate of its
    result, or None."""

    weight: int
    bias: int = 0
    gate: NormGate | None = None

    @classmethod
    def load(cls, w: Weights, name: str, n: int, gate_factor: float = 0.0) -> Self:
        """An RMS norm of n values with the weight `name`. gate_factor: of its gate; 0: it has none."""
        return cls(w.vector(name, n), 0, NormGate.load(w, name, n, gate_factor) if gate_factor else None)

    def build(
        self,
        b: Builder,
        x: Rows,
        eps: float,
        residual: Rows | None = None,
        *,
        outputs: bool = False,
        of_outputs: bool = False,
        out: Rows | None = None,
        **more: Any,
    ) -> Rows:
        """Add the ops of the norm and of its gate. of_outputs: x has only the rows for which logits are wanted. more:
        other arguments of `Builder.norm`."""
        if of_outputs:
            more["count"] = b.batch.n_out
        if self.gate is None:
            return b.norm(x, self.weight, eps, residual, bias=self.bias, outputs=outputs, out=out, **more)
        rows = b.norm(x, self.weight, eps, residual, bias=self.bias, outputs=outputs, **more)
        return self.gate.build(b, rows, outputs or of_outputs, out)
