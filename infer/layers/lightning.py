"""Lightning attention: linear attention whose state decays by a fixed factor per head and layer.

Qin et al. 2024, arXiv:2401.04658; MiniMax-01, arXiv:2501.08313
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..kernels.recurrent.lightning import lightning_inputs
from ..kernels.recurrent.mamba2 import mamba2_scan
from ..kernels.rows.gated_norm import gated_norm
from ..loading.weights import Weights
from ..memory import HybridMemory, RecurrentSpec
from ..program.builder import Builder, Rows

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
