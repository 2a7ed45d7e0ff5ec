"""The Mamba-2 mixer: in-projection, causal convolution, scan, gate, norm of groups, out-projection. Dao & Gu 2024,
arXiv:2405.21060."""

import math
from dataclasses import dataclass

import numpy as np

from ..kernels.recurrent.conv import conv1d_silu
from ..kernels.recurrent.mamba2 import decay_rate, mamba2_scan, mamba2_steps
from ..kernels.rows.gated_norm import gated_norm
from ..loading.weights import Weights
from ..memory import HybridMemory, RecurrentSpec
from ..program.builder import Builder, Rows
from .base import add_bias, decay_logs, optional_bias


@dataclass
class Mamba2:
    """n_head heads of d_inner / n_head channels, n_group groups of B and C; step sizes are clamped to `limits`.

    normed: a norm follows the gate; with norm_first it comes before the gate. Input and output projections have biases
    where the file does.
    """

    layer: int
    n_embd: int
    d_inner: int
    d_state: int
    d_conv: int
    n_head: int
    n_group: int
    eps: float
    limits: tuple[float, float] = (0.0, math.inf)
    normed: bool = True
    norm_first: bool = False

    @property
    def n_mixed(self) -> int:
        """Channels of the convolution: x, B, C."""
        return self.d_inner + 2 * self.n_group * self.d_state

    def load(self, w: Weights) -> None:
        if self.d_inner % self.n_head:
            raise w.wrong("ssm.time_step_rank", self.n_head, f"a divisor of ssm.inner_size = {self.d_inner}")
        if self.n_head % self.n_group:
            raise w.wrong("ssm.group_count", self.n_group, f"a divisor of the {self.n_head} heads")
        p = f"blk.{self.layer}."
        self.w_in = w.matrix(p + "ssm_in.weight", self.d_inner + self.n_mixed + self.n_head, self.n_embd)
        self.w_out = w.matrix(p + "ssm_out.weight", self.n_embd, self.d_inner)
        self.bias_in = optional_bias(w, p + "ssm_in.weight", self.d_inner + self.n_mixed + self.n_head)
        self.bias_out = optional_bias(w, p + "ssm_out.weight", self.n_embd)
        taps = w.array(p + "ssm_conv1d.weight", self.n_mixed, self.d_conv)
        self.taps = w.keep(np.ascontiguousarray(taps.T))
        self.conv_bias = optional_bias(w, p + "ssm_conv1d.weight", self.n_mixed)
        self.dt_bias = w.vector(p + "ssm_dt.bias", self.n_head)
        a = decay_logs(w, p + "ssm_a", self.n_head, 1)
        self.rate = w.keep(decay_rate(a))
        self.skip = w.keep(w.array(p + "ssm_d", self.n_head, 1))
        if self.normed:
            self.norm = w.keep(w.array(p + "ssm_norm.weight", self.n_group, self.d_inner // self.n_group))

    def memory(self) -> tuple[RecurrentSpec]:
        d_head = self.d_inner // self.n_head
        return (
            RecurrentSpec(self.layer, self.n_mixed, self.d_conv, self.n_head, d_head, self.d_state, mixer="Mamba-2"),
        )

    def build(self, b: Builder, x: Rows, memory: HybridMemory) -> Rows:
        batch = b.batch
        conv, state = memory.recurrent.conv[self.layer], memory.recurrent.ssm[self.layer]
        rows = add_bias(b, b.matmul(x, self.w_in, "ssm_in"), self.bias_in)
        gate, inputs = rows.columns(0, self.d_inner), rows.columns(self.d_inner, self.n_mixed)
        dt = rows.columns(self.d_inner + self.n_mixed, self.n_head)
        delta, decay = b.rows(self.n_head), b.rows(self.n_head)
        low, high = self.limits
        b.op(
            mamba2_steps, count=batch.n_tok, dt=dt, dt_bias=self.dt_bias, rate=self.rate, delta=delta, decay=decay,
            n_head=self.n_head, low=low, high=high,
        )  # fmt: skip
        mixed = b.rows(self.n_mixed)
        b.op(
            conv1d_silu, ctl=batch.ctl, seg=batch.seg, x=inputs, w=self.taps, bias=self.conv_bias,
            state=conv.ctypes.data, stride=conv.strides[0], y=mixed, n_channel=self.n_mixed, d_conv=self.d_conv,
        )  # fmt: skip
        groups = self.n_group * self.d_state
        B, C = mixed.columns(self.d_inner, groups), mixed.columns(self.d_inner + groups, groups)
        y = b.rows(self.d_inner)
        after = self.normed and self.norm_first
        b.op(
            mamba2_scan, nbytes=2 * state[0].nbytes, flops=5 * self.d_inner * self.d_state, ctl=batch.ctl,
            seg=batch.seg, x=mixed, b=B, c=C, delta=delta, decay=decay, skip=self.skip, z=None if after else gate,
            state=state.ctypes.data, stride=state.strides[0], y=y, n_head=self.n_head,
            d_head=self.d_inner // self.n_head, d_state=self.d_state, n_group=self.n_group,
        )  # fmt: skip
        if self.normed:
            n = self.d_inner // self.n_group
            b.op(
                gated_norm, name="ssm_norm", count=batch.n_tok, y=y, z=gate if after else None, weight=self.norm,
                stride=4 * n, out=y, n_group=self.n_group, n=n, eps=float(self.eps), norm_first=int(after),
            )  # fmt: skip
        return add_bias(b, b.matmul(y, self.w_out, "ssm_out"), self.bias_out)
