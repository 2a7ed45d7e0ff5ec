"""Self-attention with grouped queries (arXiv:2305.13245), with or without rotary positions (arXiv:2104.09864)."""

import math
from dataclasses import dataclass

import numpy as np

from ..kernels import attention as kernels
from ..memory import AttentionSpec, HybridMemory
from ..program import Builder, Counter, Ref, Rows
from ..weights import Weights


@dataclass
class Rope:
    """Rotary embedding of the first n_rot values of every head; the table is made once per model and shared."""

    n_rot: int
    freq_base: float
    style: int = kernels.NORM
    freq_scale: float = 1.0
    factors: np.ndarray | None = None

    def table(self, w: Weights, n_ctx: int) -> int:
        """Address of cos and sin for n_ctx positions; layers that turn alike share one table."""
        key = ("rope", n_ctx, self.n_rot, self.freq_base, self.freq_scale, self.factors is None)
        if key not in w.shared:
            made = kernels.rope_table(n_ctx, self.n_rot, self.freq_base, self.freq_scale, self.factors)
            w.shared[key] = w.keep(made)
        return w.shared[key]


@dataclass
class Attention:
    """n_head query heads over n_kv key and value heads of d_head each; scale 1 / sqrt(d_head)."""

    layer: int
    n_embd: int
    n_head: int
    n_kv: int
    d_head: int
    rope: Rope | None = None
    letter = "A"

    def load(self, w: Weights) -> None:
        if self.n_head % self.n_kv:
            raise w.wrong("attention.head_count_kv", self.n_kv, f"a divisor of the {self.n_head} query heads")
        if self.rope and (self.rope.n_rot % 2 or self.rope.n_rot > self.d_head):
            raise w.wrong("rope.dimension_count", self.rope.n_rot, f"an even part of a head of {self.d_head} values")
        p = f"blk.{self.layer}."
        self.w_q = w.matrix(p + "attn_q.weight", self.n_head * self.d_head, self.n_embd)
        self.w_k = w.matrix(p + "attn_k.weight", self.n_kv * self.d_head, self.n_embd)
        self.w_v = w.matrix(p + "attn_v.weight", self.n_kv * self.d_head, self.n_embd)
        self.w_out = w.matrix(p + "attn_output.weight", self.n_embd, self.n_head * self.d_head)
        self._weights = w

    def memory(self) -> AttentionSpec:
        return AttentionSpec(self.layer, self.n_kv, self.d_head)

    def build(self, b: Builder, x: Rows, memory: HybridMemory) -> Rows:
        batch = b.batch
        n_ctx = memory.n_ctx
        keys, values = memory.attention.k[self.layer], memory.attention.v[self.layer]
        q = b.matmul(x, self.w_q, "attn_q")
        k = b.matmul(x, self.w_k, "attn_k")
        v = b.matmul(x, self.w_v, "attn_v")
        if self.rope:
            table = self.rope.table(self._weights, n_ctx)
            for rows, heads in ((q, self.n_head), (k, self.n_kv)):
                b.op(
                    kernels.rope, batch.ctl, batch.pos, rows, rows.ld, heads, self.d_head, self.rope.n_rot, table,
                    self.rope.style, Counter(),
                )  # fmt: skip
        b.op(
            kernels.kv_store, batch.ctl, batch.pos, batch.slot, k, k.ld, v, v.ld, keys.ctypes.data, values.ctypes.data,
            keys.strides[0], values.strides[0], self.n_kv, self.d_head, n_ctx,
        )  # fmt: skip
        out = b.rows(self.n_head * self.d_head)
        per_thread = b.need_scratch(kernels.attention_scratch_bytes(self.d_head))
        b.op(
            kernels.attention, batch.ctl, batch.pos, batch.slot, q, q.ld, keys.ctypes.data, values.ctypes.data,
            keys.strides[0], values.strides[0], out, out.ld, self.n_head, self.n_kv, self.d_head,
            float(1 / math.sqrt(self.d_head)), n_ctx, Ref(b.scratch), per_thread, Counter(), 0,
        )  # fmt: skip
        return b.matmul(out, self.w_out, "attn_out")
