"""Sums of the squares of the inputs of weights, per column, for importance matrices."""

from dataclasses import dataclass, field

import numpy as np

from ..build.jit import kernel
from ..emit.emitter import F32, Vec, emit, ldf, ldi, stf
from ..emit.fields import Address, Int
from ..rows.elementwise import over_values

V16F = Vec(F32, 16)


@emit("i64,i64,i64->void")
def _add_squares(e, x, sums, n):
    """sums += x * x for n values, rounded once."""

    def add(ty):
        def one(offset):
            value = e.load(ty, x, offset)
            e.store(e.fma(value, value, e.load(ty, sums, offset)), sums, offset)

        return one

    over_values(e, n, add(V16F), add(F32))


@kernel
def square_sums(
    a, tid, nth, *, groups: Address, x: Address, ldx: Int, index: Address = 0, n: Int, sums: Address, counts: Address
):
    """sums[expert] += x * x for the rows x of a product's inputs, in their order; counts[expert] += number of rows.

    groups  see gemv.py
    index   i64, the row of x for each of the product's columns; 0: column c is row c
    sums    f32 [expert][n]
    counts  f32 [expert]
    """
    lines = (n + 15) // 16
    first, last = lines * tid // nth * 16, min(lines * (tid + 1) // nth * 16, n)
    for g in range(ldi(groups)):
        expert, begin, count = ldi(groups + 8 + 24 * g), ldi(groups + 16 + 24 * g), ldi(groups + 24 + 24 * g)
        place = sums + 4 * (expert * n + first)
        if first < last:
            for column in range(begin, begin + count):
                row = ldi(index + 8 * column) if index else column
                _add_squares(x + row * ldx + 4 * first, place, last - first)
        if tid == 0:
            total = counts + 4 * expert
            stf(total, ldf(total) + np.float32(count))


@dataclass(eq=False)
class SquareSums:
    """The running sums and counts of `square_sums`, by name of the weight."""

    _running: dict[str, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)

    def addresses(self, name: str, n_expert: int, n: int) -> tuple[int, int]:
        """Addresses of the sums f32 [n_expert, n] and counts f32 [n_expert] of a weight; they never change."""
        if name not in self._running:
            self._running[name] = np.zeros((n_expert, n), np.float32), np.zeros(n_expert, np.float32)
        sums, counts = self._running[name]
        assert sums.shape == (n_expert, n), name
        return int(sums.ctypes.data), int(counts.ctypes.data)

    def clear(self) -> None:
        """Set all sums and counts to zero."""
        for sums, counts in self._running.values():
            sums[:] = counts[:] = 0

    def take(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Return and clear the sums, f32 [expert, column], and counts, f32 [expert], of weights with a count above 0.

        Call it every few thousand rows: large sums in f32 lose small additions.
        """
        taken = {name: (x.copy(), counts.copy()) for name, (x, counts) in self._running.items() if counts.any()}
        self.clear()
        return taken
