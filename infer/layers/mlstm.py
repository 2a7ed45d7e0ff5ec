"""The mLSTM of xLSTM: a matrix memory with exponential gates and its own norm. Beck et al. 2024, arXiv:2405.04517;
Beck et al. 2025, arXiv:2503.13427."""

import math
from dataclasses import dataclass

import numpy as np

from ..kernels.recurrent.mamba2 import mamba2_scan
from ..kernels.recurrent.mlstm import mlstm_gates, mlstm_inputs, mlstm_output
from ..kernels.rows import elementwise
from ..loading.weights import Weights
from ..memory import HybridMemory, RecurrentSpec
from ..program.builder import Builder, Rows


@dataclass
class Mlstm:
    """n_head heads of d_k keys and d_v values; gates are soft-capped by `cap`.

    eps: added to the divisor of the result; norm_eps: of the norm of every head.
    """

    layer: int
    n_embd: int
    n_head: int
    d_k: int
    d_v: int
    cap: float
    eps: float
    norm_eps: float

    def load(self, w: Weights) -> None:
        p, n, n_k, n_v = f"blk.{self.layer}.mlstm_", self.n_embd, self.n_head * self.d_k, self.n_head * self.d_v
        sizes = {"q": n_k, "k": n_k, "v": n_v, "ogate": n_v, "igate": self.n_head, "fgate": self.n_head}
        self.w = {part: w.matrix(f"{p}{part}.weight", rows, n) for part, rows in sizes.items()}
        self.w_out = w.matrix(p + "out.weight", n, n_v)
        self.bias = {gate: w.vector(f"{p}{gate}.bias", self.n_head) for gate in ("igate", "fgate")}
        self.norm = w.vector(p + "norm.weight", n_v)
        self.skip = w.keep(np.zeros(self.n_head, np.float32))

    def memory(self) -> tuple[RecurrentSpec]:
        """m of every head is kept in place of the input of a convolution with two taps."""
        return (RecurrentSpec(self.layer, self.n_head, 2, self.n_head, self.d_v + 1, self.d_k, mixer="mLSTM"),)

    def build(self, b: Builder, x: Rows, memory: HybridMemory) -> Rows:
        batch, n_head, d_k, d_v = b.batch, self.n_head, self.d_k, self.d_v
        largest, state = memory.recurrent.conv[self.layer], memory.recurrent.ssm[self.layer]
        q, k, v, out_gate, i, f = (b.matmul(x, w, f"mlstm_{part}") for part, w in self.w.items())
        gain, decay, low = (b.rows(n_head) for _ in range(3))
        b.op(
            mlstm_gates, ctl=batch.ctl, seg=batch.seg, gate_i=i, bias_i=self.bias["igate"], gate_f=f,
            bias_f=self.bias["fgate"], cap=float(self.cap), state=largest.ctypes.data, stride=largest.strides[0],
            gain=gain, decay=decay, low=low, n_head=n_head,
        )  # fmt: skip
        b.op(elementwise.scale_rows, count=batch.n_tok, x=q, n=q.n, scale=1 / math.sqrt(d_k))
        n_v, n_k = n_head * (d_v + 1), n_head * d_k
        rows, y, out = b.rows(n_v + 2 * n_k), b.rows(n_v), b.rows(n_head * d_v)
        b.op(mlstm_inputs, count=batch.n_tok, v=v, k=k, q=q, out=rows, n_head=n_head, d_k=d_k, d_v=d_v)
        b.op(
            mamba2_scan, name="mlstm_scan", nbytes=2 * state[0].nbytes, flops=5 * n_v * d_k, ctl=batch.ctl,
            seg=batch.seg, x=rows, b=rows.columns(n_v, n_k), c=rows.columns(n_v + n_k, n_k), delta=gain, decay=decay,
            skip=self.skip, state=state.ctypes.data, stride=state.strides[0], y=y, n_head=n_head, d_head=d_v + 1,
            d_state=d_k, n_group=n_head,
        )  # fmt: skip
        b.op(
            mlstm_output, count=batch.n_tok, y=y, low=low, gate=out_gate, weight=self.norm, out=out, n_head=n_head,
            d=d_v, eps=float(self.eps), norm_eps=float(self.norm_eps),
        )  # fmt: skip
        return b.matmul(out, self.w_out, "mlstm_out")
