"""Matrices whose inputs and results are clamped (Gemma 4)."""

from collections.abc import Mapping
from typing import NamedTuple

from ..kernels.rows.clamp import clamp_between
from ..program.builder import Batch, Builder, Columns, Rows, Weight
from .weights import TowerWeights

PARTS = ("input_min", "input_max", "output_min", "output_max")


class Clamps(NamedTuple):
    """Bounds of a matrix's inputs and of its results."""

    input_min: float
    input_max: float
    output_min: float
    output_max: float


def clamps_of(w: TowerWeights) -> dict[str, Clamps]:
    """The clamps of a file, by the names of the matrices."""
    end = f".{PARTS[0]}"
    stems = [name.removesuffix(end) for name in w.gguf.tensors if name.endswith(end)]
    return {f"{stem}.weight": Clamps(*(float(w.array(f"{stem}.{part}", 1)[0]) for part in PARTS)) for stem in stems}


class ClampingBuilder(Builder):
    """A builder whose products clamp."""

    def __init__(
        self, capacity: int, n_threads: int, *, exact: bool, batch: Batch, clamps: Mapping[str, Clamps]
    ) -> None:
        super().__init__(capacity, n_threads, exact=exact, batch=batch)
        self.products.words = True
        self._clamps = clamps

    def matmul(self, x: Rows, w: Weight, name: str, columns: Columns | None = None, *, out: Rows | None = None) -> Rows:
        if (bounds := self._clamps.get(w.name)) is None:
            return super().matmul(x, w, name, columns, out=out)
        y = super().matmul(self._clamped(x, self.rows(x.n), bounds[:2]), w, name, columns, out=out)
        return self._clamped(y, y, bounds[2:])

    def _clamped(self, x: Rows, out: Rows, bounds: tuple[float, float]) -> Rows:
        low, high = bounds
        self.op(clamp_between, name="clamp", count=self.batch.n_tok, x=x, out=out, n=x.n, low=low, high=high)
        return out
