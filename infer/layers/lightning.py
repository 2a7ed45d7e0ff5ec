"""Lightning attention: linear attention whose state decays by a fixed factor per head and layer.

Qin et al. 2024, arXiv:2401.04658; MiniMax-01, arXiv:2501.08313
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..kernels.attention.rope import rope
from ..kernels.recurrent.lightning import lightning_inputs
from ..kernels.recurrent.mamba2 import mamba2_scan
from ..kernels.rows import elementwise
from ..kernels.rows.gated_norm import gated_norm
from ..loading.weights import Weights
from ..memory import HybridMemory, RecurrentSpec
from ..program.builder import Builder, Rows
from .attention import Rope
from .base import decay_logs
from .head_norm import HeadNorm

MAX_RATE = 8.0  # -log2 of the smallest decay rate in layer 0


def decay_rates(n_head: int, layer: int, n_layer: int) -> npt.NDArray[np.float64]:
    """f64 [head]: the negative logarithm of a state's decay per token; files do not contain it.

    Slopes are ALiBi's (arXiv:2108.12409), decreasing from layer to layer, almost 0 in the last one.
    """
    slopes = 2.0 ** (-MAX_RATE * np.arange(1, n_head + 1) / n_head)
    return slopes * (1 - layer / (n_layer - 1 + 1e-5) + 1e-5)


@dataclass
class LightningAttention:
    """n_head heads of d_head queries, keys and values each; eps: of the norm of all heads together, after the scan."""

    layer: int
    n_embd: int
    n_head: int
    d_head: int
    n_layer: int
    eps: float

    @property
    def by_number(self) -> tuple[int, int]:
        return self.layer, self.n_layer

    def load(self, w: Weights) -> None:
        p, n, n_inner = f"blk.{self.layer}.attn_", self.n_embd, self.n_head * self.d_head
        self.w_qkv = w.matrix(p + "qkv.weight", 3 * n_inner, n)
        self.w_gate = w.matrix(p + "gate.weight", n_inner, n)
        self.w_out = w.matrix(p + "output.weight", n, n_inner)
        self.norm = w.vector(p + "norm_2.weight", n_inner)
        self.decay = w.keep(np.exp(-decay_rates(self.n_head, self.layer, self.n_layer)).astype(np.float32))
        self.one, self.none = (w.keep(np.full(self.n_head, value, np.float32)) for value in (1, 0))

    def memory(self) -> tuple[RecurrentSpec]:
        return (RecurrentSpec(self.layer, 0, 1, self.n_head, self.d_head, self.d_head, mixer="lightning attention"),)

    def build(self, b: Builder, x: Rows, memory: HybridMemory) -> Rows:
        batch, n_head, d, n = b.batch, self.n_head, self.d_head, self.n_head * self.d_head
        state = memory.recurrent.ssm[self.layer]
        rows, y = b.rows(3 * n), b.rows(n)
        b.op(lightning_inputs, count=batch.n_tok, x=b.matmul(x, self.w_qkv, "attn_qkv"), out=rows, n_head=n_head, d=d)
        b.op(
            mamba2_scan, name="lightning_scan", nbytes=2 * state[0].nbytes, flops=5 * n * d, ctl=batch.ctl,
            seg=batch.seg, x=rows, b=rows.columns(n, n), c=rows.columns(2 * n, n), delta=self.one, lddelta=0,
            decay=self.decay, lddecay=0, skip=self.none, state=state.ctypes.data, stride=state.strides[0], y=y,
            n_head=n_head, d_head=d, d_state=d, n_group=n_head,
        )  # fmt: skip
        b.op(
            gated_norm, name="attn_norm_2", count=batch.n_tok, y=y, z=b.matmul(x, self.w_gate, "attn_gate"),
            weight=self.norm, stride=0, out=y, n_group=1, n=n, eps=float(self.eps), norm_first=1, by_sigmoid=1,
        )  # fmt: skip
        return b.matmul(y, self.w_out, "attn_out")


@dataclass
class RotaryLightning:
    """Lightning attention with norms and RoPE on queries and keys, without SiLU. Its decays are a tensor, ssm_a.

    fused    queries, keys and values are one matrix, attn_qkv, in this order
    scale    of the results; 0: 1 / sqrt(d_head)
    norm     of queries and keys, or None
    n_group  groups of adjacent values that the norm after the scan, attn_norm_2, takes apart; 0: no such norm
    eps      of that norm
    gated    the sigmoid of attn_gate multiplies the results
    """

    layer: int
    n_embd: int
    n_head: int
    d_head: int
    rope: Rope | None
    norm: HeadNorm | None
    n_group: int
    eps: float
    scale: float = 0.0
    fused: bool = False
    gated: bool = True

    def load(self, w: Weights) -> None:
        p, n = f"blk.{self.layer}.", self.n_head * self.d_head
        if self.n_group and n % self.n_group:
            raise w.wrong("hybrid.lightning.group_count", self.n_group, f"a divisor of the {n} values of all heads")
        if self.rope and (self.rope.n_rot % 2 or self.rope.n_rot > self.d_head):
            raise w.wrong(
                "rope.dimension_count", self.rope.n_rot, f"an even number of the {self.d_head} values of a head"
            )
        sizes = {"qkv": 3 * n} if self.fused else dict.fromkeys("qkv", n)
        self.w_in = {part: w.matrix(f"{p}attn_{part}.weight", rows, self.n_embd) for part, rows in sizes.items()}
        self.norms = [
            self.norm.load(w, f"{p}attn_{part}_norm.weight", self.n_head, self.d_head) if self.norm else 0
            for part in "qk"
        ]
        self.after = w.vector(p + "attn_norm_2.weight", n) if self.n_group else 0
        self.w_gate = w.matrix(p + "attn_gate.weight", n, self.n_embd) if self.gated else None
        self.w_out = w.matrix(p + "attn_output.weight", self.n_embd, n)
        rates = decay_logs(w, p + "ssm_a", self.n_head).astype(np.float64)
        self.decay = w.keep(np.exp(rates).astype(np.float32))
        # values are scaled on their way into the state: results then are, too
        scale = self.scale or 1 / math.sqrt(self.d_head)
        self.step, self.none = (w.keep(np.full(self.n_head, value, np.float32)) for value in (scale, 0))
        self._weights = w

    def memory(self) -> tuple[RecurrentSpec]:
        sizes = self.layer, 0, 1, self.n_head, self.d_head, self.d_head
        return (RecurrentSpec(*sizes, mixer="lightning attention", turned=self.rope is not None),)

    def build(self, b: Builder, x: Rows, memory: HybridMemory) -> Rows:
        batch, n_head, d, n = b.batch, self.n_head, self.d_head, self.n_head * self.d_head
        rows = [b.matmul(x, matrix, f"attn_{part}") for part, matrix in self.w_in.items()]
        q, k, v = (rows[0].columns(i * n, n) for i in range(3)) if self.fused else rows
        for part, weight in zip((q, k), self.norms, strict=True):
            if self.norm:
                self.norm.apply(b, part, n_head, weight)
            if self.rope:
                table = self.rope.table(self._weights, memory.n_ctx)
                b.op(
                    rope, ctl=batch.ctl, pos=batch.rope_pos, x=part, n_head=n_head, d_head=d, n_rot=self.rope.n_rot,
                    table=table, style=self.rope.style,
                )  # fmt: skip
        state, y = memory.recurrent.ssm[self.layer], b.rows(n)
        b.op(
            mamba2_scan, name="lightning_scan", nbytes=2 * state[0].nbytes, flops=5 * n * d, ctl=batch.ctl,
            seg=batch.seg, x=v, b=k, c=q, delta=self.step, lddelta=0, decay=self.decay, lddecay=0, skip=self.none,
            state=state.ctypes.data, stride=state.strides[0], y=y, n_head=n_head, d_head=d, d_state=d, n_group=n_head,
        )  # fmt: skip
        gate = b.matmul(x, self.w_gate, "attn_gate") if self.w_gate else None
        if self.n_group:
            size = n // self.n_group
            b.op(
                gated_norm, name="attn_norm_2", count=batch.n_tok, y=y, z=gate, weight=self.after, stride=4 * size,
                out=y, n_group=self.n_group, n=size, eps=float(self.eps), norm_first=1, by_sigmoid=1,
            )  # fmt: skip
        elif gate is not None:
            b.op(elementwise.gate_rows, name="attn_gated", count=batch.n_tok, x=y, gate=gate, n=n)
        return b.matmul(y, self.w_out, "attn_out")
