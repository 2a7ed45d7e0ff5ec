"""The mixer of Opt.Gear: short convolutions of keys and values over time, and gates from queries and keys.
arXiv:2608.01034"""

from dataclasses import dataclass

import numpy as np

from ..kernels.recurrent.conv import conv1d
from ..kernels.rows.product_gate import gate_by_products
from ..loading.weights import Weights
from ..memory import HybridMemory, RecurrentSpec
from ..program.builder import Builder, Rows
from .head_norm import HeadNorm


@dataclass
class ConvMixer:
    """With q, k and v as in attention, q and k normalized, y = out(conv(v) * sigmoid(q * conv(k))), value by value.

    n_head queries of d_head values share n_kv keys and values, whose convolutions have d_conv taps per channel.
    """

    layer: int
    n_embd: int
    n_head: int
    n_kv: int
    d_head: int
    d_conv: int
    eps: float

    def __post_init__(self) -> None:
        self.n_shared = self.n_kv * self.d_head
        self.norm = HeadNorm(self.eps)

    def load(self, w: Weights) -> None:
        p, n, n_q, d = f"blk.{self.layer}.", self.n_embd, self.n_head * self.d_head, self.d_head
        if self.n_kv < 1 or self.n_head % self.n_kv:
            raise w.wrong("shortconv.head_count_kv", self.n_kv, f"a divisor of the {self.n_head} heads")
        sizes = {"q": n_q, "k": self.n_shared, "v": self.n_shared}
        self.w_in = {part: w.matrix(f"{p}attn_{part}.weight", rows, n) for part, rows in sizes.items()}
        self.norms = {
            part: self.norm.load(w, f"{p}attn_{part}_norm.weight", heads, d)
            for part, heads in (("q", self.n_head), ("k", self.n_kv))
        }
        taps = [w.array(f"{p}ssm_conv1d_{part}.weight", self.n_shared, self.d_conv) for part in "kv"]
        self.taps = w.keep(np.ascontiguousarray(np.concatenate(taps).T))
        self.w_out = w.matrix(p + "attn_output.weight", n, n_q)

    def memory(self) -> tuple[RecurrentSpec]:
        return (RecurrentSpec(self.layer, 2 * self.n_shared, self.d_conv, mixer="gated convolutions"),)

    def build(self, b: Builder, x: Rows, memory: HybridMemory) -> Rows:
        batch, n, conv = b.batch, self.n_shared, memory.recurrent.conv[self.layer]
        inputs, mixed = b.rows(2 * n), b.rows(2 * n)
        for i, part in enumerate("kv"):
            b.matmul(x, self.w_in[part], f"attn_{part}", out=inputs.columns(i * n, n))
        q = b.matmul(x, self.w_in["q"], "attn_q")
        self.norm.apply(b, inputs.columns(0, n), self.n_kv, self.norms["k"])
        self.norm.apply(b, q, self.n_head, self.norms["q"])
        b.op(
            conv1d, ctl=batch.ctl, seg=batch.seg, x=inputs, w=self.taps, state=conv.ctypes.data,
            stride=conv.strides[0], y=mixed, n_channel=2 * n, d_conv=self.d_conv,
        )  # fmt: skip
        b.op(
            gate_by_products, name="attn_gated", count=batch.n_tok, q=q, k=mixed.columns(0, n), v=mixed.columns(n, n),
            out=q, n_head=self.n_head, n_kv=self.n_kv, n=self.d_head,
        )  # fmt: skip
        return b.matmul(q, self.w_out, "attn_out")
