"""Attention with fewer keys and values: values that are keys, or keys and values of another layer."""

from dataclasses import dataclass

import numpy as np

from ..kernels.rows import elementwise
from ..loading.weights import Weights
from ..memory import AttentionSpec, HybridMemory
from ..program.builder import Builder, Rows
from .attention import Attention
from .base import add_bias


@dataclass
class NormedValues(Attention):
    """Attention whose values are normalized per head like queries and keys, but without weights.

    tied  no projection of values: they are the projected keys before norms and RoPE
    """

    tied: bool = False

    def load(self, w: Weights) -> None:
        super().load(w)
        self.ones = w.keep(np.ones(self.d_value, np.float32))

    def projections(self) -> dict[str, int]:
        sizes = super().projections()
        return {part: n for part, n in sizes.items() if part != "v" or not self.tied}

    def _project(self, b: Builder, x: Rows, memory: HybridMemory) -> tuple[Rows, Rows, Rows]:
        if self.tied:
            q, k = (add_bias(b, b.matmul(x, w, f"attn_{part}"), self.bias[part]) for part, w in self.w_in.items())
            v = b.rows(k.n)
            b.op(elementwise.copy_rows, name="attn_v", count=b.batch.n_tok, x=k, out=v, n=v.n)
        else:
            q, k, v = super()._project(b, x, memory)
        if self.norm:
            self.norm.apply(b, v, self.n_kv, self.ones)
        return q, k, v


@dataclass
class BorrowedKeys(Attention):
    """Attention with queries from weights of `block`, over the keys and values that `layer` keeps.

    Both have the same window, heads and RoPE.
    """

    def projections(self) -> dict[str, int]:
        return {"q": super().projections()["q"]}

    def memory(self) -> tuple[AttentionSpec, ...]:
        return ()

    def build(self, b: Builder, x: Rows, memory: HybridMemory) -> Rows:
        q = add_bias(b, b.matmul(x, self.w_in["q"], "attn_q"), self.bias["q"])
        if self.norm:
            self.norm.apply(b, q, self.n_head, self.norm_weights["q"])
        if self.rope:
            self.turn(b, q, self.n_head, self.rope, memory)
        return self._projected(b, self.attend(b, q, memory))
