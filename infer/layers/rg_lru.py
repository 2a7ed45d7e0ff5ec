"""The recurrent block of Griffin: a convolution and a gated linear recurrence, beside a branch with GELU. De et al.
2024, arXiv:2402.19427"""

from dataclasses import dataclass

import numpy as np

from ..kernels.recurrent.conv import conv1d
from ..kernels.recurrent.rglru import lru_rate, rg_lru
from ..kernels.rows import elementwise
from ..loading.weights import Weights
from ..memory import HybridMemory, RecurrentSpec
from ..program.builder import Builder, Counter, Rows
from .base import add_bias, optional_bias


@dataclass
class RgLru:
    """n_channel channels; their gates are products with n_head square blocks."""

    layer: int
    n_embd: int
    n_channel: int
    n_head: int
    d_conv: int

    def load(self, w: Weights) -> None:
        if self.n_channel % self.n_head:
            raise w.wrong("lru.head_count", self.n_head, f"a divisor of lru.width = {self.n_channel}")
        p, n, width = f"blk.{self.layer}.", self.n_channel, self.n_channel // self.n_head
        self.w_in, self.w_gate = (w.matrix(f"{p}lru_{name}.weight", n, self.n_embd) for name in ("in", "gate"))
        self.w_out = w.matrix(p + "lru_out.weight", self.n_embd, n)
        self.bias = {
            name: optional_bias(w, f"{p}lru_{name}.weight", rows)
            for name, rows in (("in", n), ("gate", n), ("out", self.n_embd))
        }
        self.taps = w.keep(np.ascontiguousarray(w.array(p + "ssm_conv1d.weight", n, self.d_conv).T))
        self.conv_bias = w.vector(p + "ssm_conv1d.bias", n)
        self.blocks = {
            name: w.experts(f"{p}lru_{name}_gate.weight", self.n_head, width, width) for name in ("input", "recurrence")
        }
        self.gate_bias = {name: w.vector(f"{p}lru_{name}_gate.bias", n) for name in self.blocks}
        self.rate = w.keep(lru_rate(w.array(p + "lru_a", n)))

    def memory(self) -> tuple[RecurrentSpec]:
        return (RecurrentSpec(self.layer, self.n_channel, self.d_conv, 1, self.n_channel, 1),)

    def build(self, b: Builder, x: Rows, memory: HybridMemory) -> Rows:
        batch, n = b.batch, self.n_channel
        conv, state = memory.recurrent.conv[self.layer], memory.recurrent.ssm[self.layer]
        branch = add_bias(b, b.matmul(x, self.w_gate, "lru_gate"), self.bias["gate"])
        inner = add_bias(b, b.matmul(x, self.w_in, "lru_in"), self.bias["in"])
        mixed, y = b.rows(n), b.rows(n)
        b.op(
            conv1d, batch.ctl, batch.seg, inner, inner.ld, self.taps, self.conv_bias, conv.ctypes.data,
            conv.strides[0], mixed, mixed.ld, n, self.d_conv, Counter(),
        )  # fmt: skip
        recurrence, into = (self._blocks(b, mixed, name) for name in ("recurrence", "input"))
        b.op(
            rg_lru, batch.ctl, batch.seg, mixed, mixed.ld, recurrence, recurrence.ld, self.gate_bias["recurrence"],
            into, into.ld, self.gate_bias["input"], self.rate, state.ctypes.data, state.strides[0], y, y.ld, n,
            Counter(), nbytes=2 * state[0].nbytes,
        )  # fmt: skip
        b.op(elementwise.geglu, batch.n_tok, branch, branch.ld, y, y.ld, y, y.ld, n)
        return add_bias(b, b.matmul(y, self.w_out, "lru_out"), self.bias["out"])

    def _blocks(self, b: Builder, x: Rows, name: str) -> Rows:
        """The product with a matrix that is zero but for square blocks on its diagonal."""
        out, width = b.rows(self.n_channel), self.n_channel // self.n_head
        for h in range(self.n_head):
            part = b.matmul(x.columns(h * width, width), self.blocks[name].one(h), f"lru_{name}_gate")
            target = out.columns(h * width, width)
            b.op(elementwise.take_parts, b.batch.n_tok, part, part.ld, target, target.ld, 1, width, 0)
        return out
