"""The recurrent block of Griffin: a convolution and a gated linear recurrence, multiplied by a branch with GELU.

De et al. 2024, arXiv:2402.19427
"""

from dataclasses import dataclass

import numpy as np

from ..kernels.recurrent.conv import conv1d
from ..kernels.recurrent.rglru import lru_rate, rg_lru
from ..kernels.rows import elementwise
from ..loading.weights import Weights
from ..memory import HybridMemory, RecurrentSpec
from ..program.builder import Builder, Rows
from .base import add_bias, optional_bias


@dataclass
class RgLru:
    """n_channel channels; their gates come from a block-diagonal matrix of n_head square blocks."""

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
        return (RecurrentSpec(self.layer, self.n_channel, self.d_conv, 1, self.n_channel, 1, mixer="RG-LRU"),)

    def build(self, b: Builder, x: Rows, memory: HybridMemory) -> Rows:
        batch, n = b.batch, self.n_channel
        conv, state = memory.recurrent.conv[self.layer], memory.recurrent.ssm[self.layer]
        branch = add_bias(b, b.matmul(x, self.w_gate, "lru_gate"), self.bias["gate"])
        inner = add_bias(b, b.matmul(x, self.w_in, "lru_in"), self.bias["in"])
        mixed, y = b.rows(n), b.rows(n)
        b.op(
            conv1d, ctl=batch.ctl, seg=batch.seg, x=inner, w=self.taps, bias=self.conv_bias, state=conv.ctypes.data,
            stride=conv.strides[0], y=mixed, n_channel=n, d_conv=self.d_conv,
        )  # fmt: skip
        recurrence, into = (self._blocks(b, mixed, name) for name in ("recurrence", "input"))
        b.op(
            rg_lru, nbytes=2 * state[0].nbytes, ctl=batch.ctl, seg=batch.seg, x=mixed, gate_r=recurrence,
            bias_r=self.gate_bias["recurrence"], gate_i=into, bias_i=self.gate_bias["input"], rate=self.rate,
            state=state.ctypes.data, stride=state.strides[0], y=y, n_channel=n,
        )  # fmt: skip
        b.op(elementwise.geglu, count=batch.n_tok, gate=branch, up=y, out=y, n=n)
        return add_bias(b, b.matmul(y, self.w_out, "lru_out"), self.bias["out"])

    def _blocks(self, b: Builder, x: Rows, name: str) -> Rows:
        """The product with a block-diagonal matrix."""
        out, width = b.rows(self.n_channel), self.n_channel // self.n_head
        for h in range(self.n_head):
            part = b.matmul(x.columns(h * width, width), self.blocks[name].one(h), f"lru_{name}_gate")
            target = out.columns(h * width, width)
            b.op(elementwise.take_parts, count=b.batch.n_tok, x=part, out=target, n_group=1, n=width, stride=0)
        return out
