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
from ..program.builder import Builder, Counter, Rows


@dataclass
class Mlstm:
    """n_head heads of d_k keys and d_v values; gates are capped by `cap`. eps: of what is divided by, norm_eps: of the
    norm of every head."""

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
        """m of every head lies where other layers keep the input of a convolution with two taps."""
        return (RecurrentSpec(self.layer, self.n_head, 2, self.n_head, self.d_v + 1, self.d_k),)

    def build(self, b: Builder, x: Rows, memory: HybridMemory) -> Rows:
        batch, n_head, d_k, d_v = b.batch, self.n_head, self.d_k, self.d_v
        largest, state = memory.recurrent.conv[self.layer], memory.recurrent.ssm[self.layer]
        q, k, v, out_gate, i, f = (b.matmul(x, w, f"mlstm_{part}") for part, w in self.w.items())
        gain, decay, low = (b.rows(n_head) for _ in range(3))
        b.op(
            mlstm_gates, batch.ctl, batch.seg, i, i.ld, self.bias["igate"], f, f.ld, self.bias["fgate"],
            float(self.cap), largest.ctypes.data, largest.strides[0], gain, gain.ld, decay, decay.ld, low, low.ld,
            n_head, Counter(),
        )  # fmt: skip
        b.op(elementwise.scale_rows, batch.n_tok, q, q.ld, q.n, 1 / math.sqrt(d_k))
        n_v, n_k = n_head * (d_v + 1), n_head * d_k
        rows, y, out = b.rows(n_v + 2 * n_k), b.rows(n_v), b.rows(n_head * d_v)
        b.op(mlstm_inputs, batch.n_tok, v, v.ld, k, k.ld, q, q.ld, rows, rows.ld, n_head, d_k, d_v)
        b.op(
            mamba2_scan, batch.ctl, batch.seg, rows, rows.columns(n_v, n_k), rows.columns(n_v + n_k, n_k), rows.ld,
            gain, gain.ld, decay, decay.ld, self.skip, 0, 0, state.ctypes.data, state.strides[0], y, y.ld, n_head,
            d_v + 1, d_k, n_head, Counter(), name="mlstm_scan", nbytes=2 * state[0].nbytes, flops=5 * n_v * d_k,
        )  # fmt: skip
        b.op(
            mlstm_output, batch.n_tok, y, y.ld, low, low.ld, out_gate, out_gate.ld, self.norm, out, out.ld, n_head,
            d_v, float(self.eps), float(self.norm_eps),
        )  # fmt: skip
        return b.matmul(out, self.w_out, "mlstm_out")
