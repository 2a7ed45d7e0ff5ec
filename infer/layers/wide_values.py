"""Attention whose values are wider than its keys."""

from dataclasses import dataclass

from ..kernels.rows.heads import pad_heads
from ..memory import HybridMemory
from ..program.builder import Builder, Rows
from .attention import Attention
from .shared_keys import BorrowedKeys


@dataclass
class WideValues(Attention):
    """Queries and keys of n_key values each; memory and kernels take heads of d_head values, padded with zeros."""

    n_key: int = 0

    def projections(self) -> dict[str, int]:
        n_q, n_k = self.n_head * self.n_key, self.n_kv * self.n_key
        return {**super().projections(), "q": n_q, "k": n_k}

    def store(self, b: Builder, k: Rows, v: Rows, memory: HybridMemory) -> None:
        super().store(b, self._padded(b, k, self.n_kv), v, memory)

    def attend(self, b: Builder, q: Rows, memory: HybridMemory) -> Rows:
        return super().attend(b, self._padded(b, q, self.n_head), memory)

    def _padded(self, b: Builder, x: Rows, n_head: int) -> Rows:
        out = b.rows(n_head * self.d_head)
        b.op(pad_heads, count=b.batch.n_tok, x=x, out=out, n_head=n_head, n=self.n_key, width=self.d_head)
        return out


@dataclass
class BorrowedWide(BorrowedKeys, WideValues):
    """The same with the weights of `block`, over the keys and values of `layer`."""
