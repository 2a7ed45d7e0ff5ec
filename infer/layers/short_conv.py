"""The gated short convolution of LFM2: y = out(C * conv(B * x)) with B, C and x projected from the input.
arXiv:2511.23404

In encoders the taps of a token are before and after it."""

from dataclasses import dataclass

import numpy as np

from ..kernels.recurrent.conv import conv1d_gated
from ..kernels.rows.centered_conv import centered_conv
from ..loading.weights import Weights
from ..memory import HybridMemory, RecurrentSpec
from ..program.builder import Builder, Rows
from .base import add_bias, optional_bias


@dataclass
class ShortConv:
    """d_conv taps for each of n_embd channels; biases where the file has them."""

    layer: int
    n_embd: int
    d_conv: int

    def load(self, w: Weights) -> None:
        p, n = f"blk.{self.layer}.shortconv.", self.n_embd
        self.w_in = w.matrix(p + "in_proj.weight", 3 * n, n)  # rows of B, of C, of x
        self.w_out = w.matrix(p + "out_proj.weight", n, n)
        self.bias_in = optional_bias(w, p + "in_proj.weight", 3 * n)
        self.bias_out, self.bias = (optional_bias(w, f"{p}{part}.weight", n) for part in ("out_proj", "conv"))
        self.taps = w.keep(np.ascontiguousarray(w.array(p + "conv.weight", n, self.d_conv).T))

    def memory(self) -> tuple[RecurrentSpec]:
        return (RecurrentSpec(self.layer, self.n_embd, self.d_conv, mixer="short convolution"),)

    def build(self, b: Builder, x: Rows, memory: HybridMemory) -> Rows:
        batch, n, conv = b.batch, self.n_embd, memory.recurrent.conv[self.layer]
        rows = add_bias(b, b.matmul(x, self.w_in, "shortconv_in"), self.bias_in)
        before, after, inner = (rows.columns(i * n, n) for i in range(3))
        y = b.rows(n)
        b.op(
            conv1d_gated, ctl=batch.ctl, seg=batch.seg, x=inner, w=self.taps, bias=self.bias, state=conv.ctypes.data,
            stride=conv.strides[0], y=y, n_channel=n, d_conv=self.d_conv, before=before, after=after,
        )  # fmt: skip
        return add_bias(b, b.matmul(y, self.w_out, "shortconv_out"), self.bias_out)


@dataclass
class CenteredShortConv(ShortConv):
    """The same over the tokens of a whole text, with as many taps before a token as after it. Nothing is kept."""

    def load(self, w: Weights) -> None:
        if self.d_conv % 2 == 0:
            raise w.wrong("shortconv.l_cache", self.d_conv, "an odd number, as many tokens before as after")
        super().load(w)

    def memory(self) -> tuple[()]:  # type: ignore[override]
        return ()

    def build(self, b: Builder, x: Rows, memory: HybridMemory) -> Rows:
        batch, n = b.batch, self.n_embd
        rows = add_bias(b, b.matmul(x, self.w_in, "shortconv_in"), self.bias_in)
        before, after, inner = (rows.columns(i * n, n) for i in range(3))
        y = b.rows(n)
        b.op(
            centered_conv, count=batch.n_tok, pos=batch.pos, last=batch.last, x=inner, before=before, after=after,
            w=self.taps, bias=self.bias, y=y, n=n, d_conv=self.d_conv,
        )  # fmt: skip
        return add_bias(b, b.matmul(y, self.w_out, "shortconv_out"), self.bias_out)
