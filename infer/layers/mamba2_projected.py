"""The Mamba-2 mixer of PLaMo 2 (arXiv:2509.04897). Dao & Gu 2024, arXiv:2405.21060.

B, C and step sizes are projected from the convolved channels, as in Mamba-1, each with a norm.
"""

import math
from dataclasses import dataclass

import numpy as np

from ..kernels.recurrent.conv import conv1d_silu
from ..kernels.recurrent.mamba2 import decay_rate, mamba2_scan, mamba2_steps
from ..kernels.rows import elementwise
from ..kernels.rows.gated_norm import gated_norm
from ..loading.weights import Weights
from ..memory import HybridMemory, RecurrentSpec
from ..program.builder import Builder, Rows
from .base import decay_logs, optional_bias


@dataclass
class ProjectedMamba2:
    """n_head heads of d_inner / n_head channels, one group of B and C; dt_rank values per token make step sizes."""

    layer: int
    n_embd: int
    d_inner: int
    d_state: int
    d_conv: int
    n_head: int
    dt_rank: int
    eps: float

    def load(self, w: Weights) -> None:
        if self.d_inner % self.n_head:
            raise w.wrong("ssm.time_step_rank", self.n_head, f"a divisor of ssm.inner_size = {self.d_inner}")
        p, n_state = f"blk.{self.layer}.", self.d_state
        self.w_in = w.matrix(p + "ssm_in.weight", 2 * self.d_inner, self.n_embd)  # per head the rows of z, then of x
        self.w_x = w.matrix(p + "ssm_x.weight", 2 * n_state + self.dt_rank, self.d_inner)
        self.w_dt = w.matrix(p + "ssm_dt.weight", self.n_head, self.dt_rank)
        self.w_out = w.matrix(p + "ssm_out.weight", self.n_embd, self.d_inner)
        self.taps = w.keep(np.ascontiguousarray(w.array(p + "ssm_conv1d.weight", self.d_inner, self.d_conv).T))
        self.conv_bias = optional_bias(w, p + "ssm_conv1d.weight", self.d_inner)
        self.dt_bias = w.vector(p + "ssm_dt.bias", self.n_head)
        a = decay_logs(w, p + "ssm_a", self.n_head)
        self.rate = w.keep(decay_rate(a))
        self.skip = w.vector(p + "ssm_d", self.n_head)
        self.dt_norm = w.vector(p + "ssm_dt_norm", self.dt_rank)
        self.norms = w.keep(np.concatenate([w.array(f"{p}ssm_{part}_norm", n_state) for part in "bc"]))

    def memory(self) -> tuple[RecurrentSpec]:
        d_head = self.d_inner // self.n_head
        return (
            RecurrentSpec(self.layer, self.d_inner, self.d_conv, self.n_head, d_head, self.d_state, mixer="Mamba-2"),
        )

    def build(self, b: Builder, x: Rows, memory: HybridMemory) -> Rows:
        batch, n, d_state, n_head = b.batch, self.d_inner, self.d_state, self.n_head
        conv, state = memory.recurrent.conv[self.layer], memory.recurrent.ssm[self.layer]
        d_head, both = n // n_head, b.matmul(x, self.w_in, "ssm_in")
        gate, inputs = b.rows(n), b.rows(n)
        for i, part in enumerate((gate, inputs)):
            b.op(
                elementwise.take_parts,
                count=batch.n_tok,
                x=both.columns(i * d_head, d_head),
                out=part,
                n_group=n_head,
                n=d_head,
                stride=8 * d_head,
            )
        mixed = b.rows(n + 2 * d_state)  # x, B, C
        channels, B, C = mixed.columns(0, n), mixed.columns(n, d_state), mixed.columns(n + d_state, d_state)
        b.op(
            conv1d_silu, ctl=batch.ctl, seg=batch.seg, x=inputs, w=self.taps, bias=self.conv_bias,
            state=conv.ctypes.data, stride=conv.strides[0], y=channels, n_channel=n, d_conv=self.d_conv,
        )  # fmt: skip
        made = b.matmul(channels, self.w_x, "ssm_x")
        b.op(
            gated_norm, name="ssm_norm", count=batch.n_tok, y=made.columns(0, 2 * d_state), weight=self.norms,
            stride=4 * d_state, out=mixed.columns(n, 2 * d_state), n_group=2, n=d_state, eps=float(self.eps),
        )  # fmt: skip
        low_rank = b.norm(made.columns(2 * d_state, self.dt_rank), self.dt_norm, self.eps, name="ssm_norm")
        delta, decay = b.rows(n_head), b.rows(n_head)
        b.op(
            mamba2_steps, count=batch.n_tok, dt=b.matmul(low_rank, self.w_dt, "ssm_dt"), dt_bias=self.dt_bias,
            rate=self.rate, delta=delta, decay=decay, n_head=n_head, low=0.0, high=math.inf,
        )  # fmt: skip
        y = b.rows(n)
        b.op(
            mamba2_scan, nbytes=2 * state[0].nbytes, flops=5 * n * d_state, ctl=batch.ctl, seg=batch.seg, x=mixed, b=B,
            c=C, delta=delta, decay=decay, skip=self.skip, z=gate, state=state.ctypes.data, stride=state.strides[0],
            y=y, n_head=n_head, d_head=d_head, d_state=d_state, n_group=1,
        )  # fmt: skip
        return b.matmul(y, self.w_out, "ssm_out")
