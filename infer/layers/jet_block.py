"""JetBlock: Gated DeltaNet whose values pass a convolution with taps of each token; queries and keys pass none.
arXiv:2508.15884, section 3.2"""

from dataclasses import dataclass

import numpy as np

from ..kernels.recurrent.conv import conv1d_dynamic
from ..kernels.rows import elementwise
from ..loading.weights import Weights
from ..program.builder import Builder, Rows
from .base import add_bias, optional_bias
from .delta_net import GatedDeltaNet


@dataclass
class JetBlock(GatedDeltaNet):
    """n_taps: values of a token between the two matrices that make its taps, ssm_taps_in and ssm_taps_out."""

    n_taps: int = 0

    def _load_taps(self, w: Weights) -> None:
        p, n_out = f"blk.{self.layer}.ssm_taps_", self.d_conv * self.n_value
        self.w_taps_in = w.matrix(p + "in.weight", self.n_taps, self.n_embd)
        self.w_taps_out = w.matrix(p + "out.weight", n_out, self.n_taps)
        self.taps_bias = optional_bias(w, p + "out.weight", n_out)

    @property
    def n_convolved(self) -> int:
        return self.n_value

    def _convolve(self, b: Builder, x: Rows, inputs: Rows, state: np.ndarray) -> tuple[Rows, Rows, Rows]:
        n_key, mixed = 2 * self.n_key, b.rows(inputs.n)
        hidden = b.matmul(x, self.w_taps_in, "ssm_taps_in")
        self._silu(b, hidden, hidden)
        taps = add_bias(b, b.matmul(hidden, self.w_taps_out, "ssm_taps_out"), self.taps_bias)
        self._silu(b, inputs.columns(0, n_key), mixed.columns(0, n_key))
        b.op(
            conv1d_dynamic, ctl=b.batch.ctl, seg=b.batch.seg, x=inputs.columns(n_key, self.n_value), w=taps,
            state=state.ctypes.data, stride=state.strides[0], y=mixed.columns(n_key, self.n_value),
            n_channel=self.n_value, d_conv=self.d_conv,
        )  # fmt: skip
        return self._split(mixed)

    def _silu(self, b: Builder, x: Rows, out: Rows) -> None:
        """out = x * sigmoid(x)"""
        if out is not x:
            b.op(elementwise.copy_rows, count=b.batch.n_tok, x=x, out=out, n=x.n)
        b.op(elementwise.gate_rows, name="silu", count=b.batch.n_tok, x=out, gate=x, n=x.n)
