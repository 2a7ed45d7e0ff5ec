"""Queries that grow with their position, so that attention over long texts stays sharp (Llama 4, Ministral 3,
Inkling).

arXiv:2501.19399
"""

from dataclasses import dataclass

import numpy as np

from ..kernels.rows import elementwise
from ..loading.weights import Weights
from ..memory.mapped import mapped_zeros
from ..program.builder import Builder, Rows


@dataclass(frozen=True)
class QueryScale:
    """A query at position p is multiplied by 1 + beta * log(1 + floor((p + offset) / period)).

    smooth  by 1 + beta * log(max(1, (p + offset) / period)) instead
    """

    beta: float
    period: int
    offset: int = 0
    smooth: bool = False

    def of(self, first: int, end: int) -> np.ndarray:
        """The factors, f32, of positions first .. end - 1."""
        places = np.arange(first + self.offset, end + self.offset)
        logs = np.log(np.maximum(places / self.period, 1)) if self.smooth else np.log1p(places // self.period)
        return (1 + self.beta * logs).astype(np.float32)

    def apply(self, b: Builder, q: Rows, w: Weights, n_ctx: int) -> None:
        """Multiply the batch's queries, in place."""
        table = self._table(w, n_ctx)
        op = elementwise.scale_rows_by_position
        b.op(op, name="attn_scale", count=b.batch.n_tok, pos=b.batch.rope_pos, x=q, n=q.n, table=table)

    def _table(self, w: Weights, n_ctx: int) -> int:
        """Address of the factors of n_ctx positions, shared by layers; filled when texts reach them."""
        key = ("query scale", n_ctx, self)
        if key not in w.shared:
            table, filled = mapped_zeros((n_ctx,), np.float32), 0

            def fill(n: int) -> None:
                nonlocal filled
                n = min(n, n_ctx)
                if n > filled:
                    table[filled:n] = self.of(filled, n)
                    filled = n

            w.reaches(fill)
            w.shared[key] = int(table.ctypes.data)
        return w.shared[key]
