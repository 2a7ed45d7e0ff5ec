"""Kimi delta attention: the delta rule with a gate for every channel of the keys. Kimi Linear, arXiv:2510.26692

A short convolution comes before it, a sigmoid gate after it.
"""

import math
from dataclasses import dataclass

import numpy as np

from ..kernels.emit.elementary import LOG2E
from ..kernels.recurrent.conv import conv1d_silu
from ..kernels.recurrent.delta import decay_rates, delta_prepare, delta_scan
from ..kernels.rows.gated_norm import gated_norm
from ..loading.weights import Weights
from ..memory import HybridMemory, RecurrentSpec
from ..program.builder import Builder, Rows, Weight
from .base import decay_logs
from .delta_net import L2_EPS

PARTS = ("q", "k", "v")


@dataclass
class KimiDelta:
    """n_head heads of d_head queries, keys and values.

    lowest     logarithm of the lowest gate, negative: gates are exp(lowest * sigmoid(A * f)); 0: exp(A * softplus(f))
    low_rank   f and the gate are products of two matrices, ssm_f_a and _b; otherwise of ssm_f_a alone, and ssm_a is
               stored without its sign
    full_gate  the gate is a product of ssm_g alone, whatever f is
    """

    layer: int
    n_embd: int
    n_head: int
    d_head: int
    d_conv: int
    eps: float
    lowest: float = 0.0
    low_rank: bool = True
    full_gate: bool = False

    @property
    def n_inner(self) -> int:
        return self.n_head * self.d_head

    def load(self, w: Weights) -> None:
        p, n, n_inner = f"blk.{self.layer}.", self.n_embd, self.n_inner
        self.w_in = {part: w.matrix(f"{p}attn_{part}.weight", n_inner, n) for part in PARTS}
        taps = [w.squeezed(f"{p}ssm_conv1d_{part}.weight", n_inner, self.d_conv) for part in PARTS]
        self.taps = w.keep(np.ascontiguousarray(np.concatenate(taps).T))
        self.w_f = self._products(w, "ssm_f")
        self.w_g = {"ssm_g": w.matrix(p + "ssm_g.weight", n_inner, n)} if self.full_gate else self._products(w, "ssm_g")
        self.w_beta = w.matrix(p + "ssm_beta.weight", self.n_head, n)
        self.dt_bias = w.vector(p + "ssm_dt.bias", n_inner)
        self.rate = w.keep(self._rates(w, p + "ssm_a"))
        self.norm = w.vector(p + "ssm_norm.weight", self.d_head)
        self.w_out = w.matrix(p + "attn_output.weight", n, n_inner)

    def _products(self, w: Weights, name: str) -> dict[str, Weight]:
        """Product name -> matrix, in the order in which a row is multiplied with them."""
        sizes = [(self.d_head, self.n_embd), (self.n_inner, self.d_head)]
        if not self.low_rank:
            sizes = [(self.n_inner, self.n_embd)]
        parts = {f"{name}_{side}": size for side, size in zip("ab", sizes, strict=False)}
        return {part: w.matrix(f"blk.{self.layer}.{part}.weight", *size) for part, size in parts.items()}

    def _rates(self, w: Weights, name: str) -> np.ndarray:
        """A rate per gate, as in `delta_prepare`."""
        a = decay_logs(w, name, self.n_head, positive=not self.low_rank)
        return np.repeat(np.abs(a), self.d_head) if self.lowest else decay_rates(a, self.d_head)

    def memory(self) -> tuple[RecurrentSpec]:
        mixer = "gated delta rule by channels"
        n, d = self.n_inner, self.d_head
        return (RecurrentSpec(self.layer, 3 * n, self.d_conv, self.n_head, d, d, mixer=mixer),)

    def build(self, b: Builder, x: Rows, memory: HybridMemory) -> Rows:
        batch, n_inner = b.batch, self.n_inner
        conv, state = memory.recurrent.conv[self.layer], memory.recurrent.ssm[self.layer]
        inputs, mixed = b.rows(3 * n_inner), b.rows(3 * n_inner)
        for i, (part, w) in enumerate(self.w_in.items()):
            b.matmul(x, w, f"attn_{part}", out=inputs.columns(i * n_inner, n_inner))
        b.op(
            conv1d_silu, ctl=batch.ctl, seg=batch.seg, x=inputs, w=self.taps, state=conv.ctypes.data,
            stride=conv.strides[0], y=mixed, n_channel=mixed.n, d_conv=self.d_conv,
        )  # fmt: skip
        q, k, v = (mixed.columns(i * n_inner, n_inner) for i in range(3))
        f, z = x, x
        for name, w in self.w_f.items():
            f = b.matmul(f, w, name)
        for name, w in self.w_g.items():
            z = b.matmul(z, w, name)
        beta = b.matmul(x, self.w_beta, "ssm_beta")
        b.op(
            delta_prepare, count=batch.n_tok, q=q, k=k, gate=f, beta=beta, gate_bias=self.dt_bias, rate=self.rate,
            n_k_head=self.n_head, d_k=self.d_head, n_gate=n_inner, n_head=self.n_head, eps=L2_EPS,
            scale=1 / math.sqrt(self.d_head), floor=self.lowest * LOG2E,
        )  # fmt: skip
        y = b.rows(n_inner)
        b.op(
            delta_scan, nbytes=2 * state[0].nbytes, flops=8 * n_inner * self.d_head, ctl=batch.ctl, seg=batch.seg,
            q=q, k=k, v=v, gate=f, beta=beta, state=state.ctypes.data, stride=state.strides[0], y=y,
            n_head=self.n_head, n_k_head=self.n_head, repeat=1, d_k=self.d_head, d_v=self.d_head,
            n_channel=self.d_head,
        )  # fmt: skip
        b.op(
            gated_norm, name="ssm_norm", count=batch.n_tok, y=y, z=z, weight=self.norm, stride=0, out=y,
            n_group=self.n_head, n=self.d_head, eps=float(self.eps), norm_first=1, by_sigmoid=1,
        )  # fmt: skip
        return b.matmul(y, self.w_out, "attn_out")
