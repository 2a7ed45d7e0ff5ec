"""Gated DeltaNet: in-projections, causal convolution, delta rule with a gate per head, gated norm, out-projection.
Yang et al. 2024, arXiv:2412.06464"""

import math
from dataclasses import dataclass

import numpy as np

from ..kernels.recurrent.conv import conv1d_silu
from ..kernels.recurrent.delta import decay_rates, delta_prepare, delta_scan
from ..kernels.rows import elementwise
from ..kernels.rows.gated_norm import gated_norm
from ..loading.weights import Weights
from ..memory import HybridMemory, RecurrentSpec
from ..program.builder import Builder, Rows
from .base import decay_logs

L2_EPS = 1e-6  # for the L2 norms of queries and keys, whatever the epsilon of the model's norms


@dataclass
class GatedDeltaNet:
    """n_head heads of d_v values, on n_k_head heads of d_k keys.

    grouped: n_head / n_k_head adjacent heads share a head of keys; otherwise head h has the keys of head h % n_k_head.
    beta_scale: factor of the sigmoid of beta, the share of the recalled value that is replaced (2: arXiv:2411.12537).
    sigmoid_gate: the result is gated by a sigmoid, otherwise by SiLU.
    gate_factor: multiplies the gate.

    Beta and alpha come from one tensor ssm_ba, by groups of heads that share keys, or from ssm_beta and ssm_alpha.
    """

    layer: int
    n_embd: int
    n_k_head: int
    n_head: int
    d_k: int
    d_v: int
    d_conv: int
    eps: float
    grouped: bool
    beta_scale: float = 1.0
    sigmoid_gate: bool = False
    gate_factor: float = 1.0

    @property
    def n_key(self) -> int:
        return self.n_k_head * self.d_k

    @property
    def n_value(self) -> int:
        return self.n_head * self.d_v

    def load(self, w: Weights) -> None:
        if self.n_head % self.n_k_head:
            raise w.wrong("ssm.group_count", self.n_k_head, f"a divisor of ssm.time_step_rank = {self.n_head}")
        p, n, mixed = f"blk.{self.layer}.", self.n_embd, 2 * self.n_key + self.n_value
        self.w_qkv = w.matrix(p + "attn_qkv.weight", mixed, n)
        self.w_gate = w.matrix(p + "attn_gate.weight", self.n_value, n)
        self.w_out = w.matrix(p + "ssm_out.weight", n, self.n_value)
        self.one_ba = p + "ssm_ba.weight" in w
        if self.one_ba:
            self.w_ba = w.matrix(p + "ssm_ba.weight", 2 * self.n_head, n)
        else:
            self.w_beta = w.matrix(p + "ssm_beta.weight", self.n_head, n)
            self.w_alpha = w.matrix(p + "ssm_alpha.weight", self.n_head, n)
        self._load_taps(w)
        self.dt_bias = w.vector(p + "ssm_dt.bias", self.n_head)
        a = decay_logs(w, p + "ssm_a", self.n_head)
        self.rate = w.keep(decay_rates(a))
        # as part of the weights the factor costs nothing
        self.norm = w.vector(p + "ssm_norm.weight", self.d_v, lambda x: x * np.float32(self.gate_factor))

    def _load_taps(self, w: Weights) -> None:
        taps = w.array(f"blk.{self.layer}.ssm_conv1d.weight", self.n_convolved, self.d_conv)
        self.taps = w.keep(np.ascontiguousarray(taps.T))

    @property
    def n_convolved(self) -> int:
        """Channels of the convolution."""
        return 2 * self.n_key + self.n_value

    def memory(self) -> tuple[RecurrentSpec]:
        return (
            RecurrentSpec(
                self.layer,
                self.n_convolved,
                self.d_conv,
                self.n_head,
                self.d_v,
                self.d_k,
                mixer="gated delta rule",
            ),
        )

    def build(self, b: Builder, x: Rows, memory: HybridMemory) -> Rows:
        batch, n_head = b.batch, self.n_head
        state = memory.recurrent.ssm[self.layer]
        inputs, z = b.matmul(x, self.w_qkv, "attn_qkv"), b.matmul(x, self.w_gate, "attn_gate")
        beta, alpha = self._beta_alpha(b, x)
        q, k, v = self._convolve(b, x, inputs, memory.recurrent.conv[self.layer])
        b.op(
            delta_prepare, count=batch.n_tok, q=q, k=k, gate=alpha, beta=beta, gate_bias=self.dt_bias, rate=self.rate,
            n_k_head=self.n_k_head, d_k=self.d_k, n_gate=n_head, n_head=n_head, eps=L2_EPS,
            scale=1 / math.sqrt(self.d_k),
        )  # fmt: skip
        if self.beta_scale != 1.0:
            b.op(elementwise.scale_rows, count=batch.n_tok, x=beta, n=beta.n, scale=float(self.beta_scale))
        y = b.rows(self.n_value)
        b.op(
            delta_scan, nbytes=2 * state[0].nbytes, flops=8 * self.n_value * self.d_k, ctl=batch.ctl, seg=batch.seg,
            q=q, k=k, v=v, gate=alpha, beta=beta, state=state.ctypes.data, stride=state.strides[0], y=y, n_head=n_head,
            n_k_head=self.n_k_head, repeat=n_head // self.n_k_head if self.grouped else 1, d_k=self.d_k, d_v=self.d_v,
            n_channel=1,
        )  # fmt: skip
        b.op(
            gated_norm, name="ssm_norm", count=batch.n_tok, y=y, z=z, weight=self.norm, stride=0, out=y, n_group=n_head,
            n=self.d_v, eps=float(self.eps), norm_first=1, by_sigmoid=int(self.sigmoid_gate),
        )  # fmt: skip
        return b.matmul(y, self.w_out, "ssm_out")

    def _convolve(self, b: Builder, x: Rows, inputs: Rows, state: np.ndarray) -> tuple[Rows, Rows, Rows]:
        """Queries, keys and values from the projections `inputs` of x. state: of the convolution."""
        mixed = b.rows(inputs.n)
        b.op(
            conv1d_silu, ctl=b.batch.ctl, seg=b.batch.seg, x=inputs, w=self.taps, state=state.ctypes.data,
            stride=state.strides[0], y=mixed, n_channel=mixed.n, d_conv=self.d_conv,
        )  # fmt: skip
        return self._split(mixed)

    def _split(self, rows: Rows) -> tuple[Rows, Rows, Rows]:
        """The columns of queries, keys and values."""
        n = self.n_key
        return rows.columns(0, n), rows.columns(n, n), rows.columns(2 * n, self.n_value)

    def _beta_alpha(self, b: Builder, x: Rows) -> tuple[Rows, Rows]:
        """The inputs of the step size (beta) and the decay (alpha) of every head."""
        if not self.one_ba:
            return b.matmul(x, self.w_beta, "ssm_beta"), b.matmul(x, self.w_alpha, "ssm_alpha")
        both, share = b.matmul(x, self.w_ba, "ssm_ba"), self.n_head // self.n_k_head
        beta, alpha = b.rows(self.n_head), b.rows(self.n_head)
        for i, part in enumerate((beta, alpha)):
            b.op(
                elementwise.take_parts,
                count=b.batch.n_tok,
                x=both.columns(i * share, share),
                out=part,
                n_group=self.n_k_head,
                n=share,
                stride=8 * share,
            )
        return beta, alpha
