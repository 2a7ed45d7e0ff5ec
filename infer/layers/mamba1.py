"""The Mamba-1 mixer: in-projection, causal convolution, selective scan, gate, out-projection. Gu & Dao 2023,
arXiv:2312.00752; with RMS norms on dt, B and C in Jamba (arXiv:2403.19887) and Falcon-Mamba (arXiv:2410.05355)."""

from dataclasses import dataclass

import numpy as np

from ..kernels.build.jit import Kernel
from ..kernels.recurrent.conv import conv1d_silu
from ..kernels.recurrent.mamba1 import mamba1_scan, mamba1_scan_ungated, scan_decay
from ..kernels.recurrent.states import pad_channels
from ..kernels.rows import elementwise
from ..loading.weights import Weights
from ..memory import HybridMemory, RecurrentSpec
from ..program.builder import Builder, Rows, Weight
from ..program.record import OpFields
from .base import add_bias, decay_logs, optional_bias


@dataclass
class Mamba1:
    """`norms`: '' no norms, 'weighted' with ssm_dt_norm, ssm_b_norm, ssm_c_norm, 'plain' without weights.

    n_head: number of scans side by side, each over its share of the channels with its own dt, B and C; ssm_x and ssm_dt
    are then stacks. 0: one scan. Input and output projections have biases where the file does.
    leaves: the name under which later layers find the scan's output before the gate; empty: not kept.
    bare: the gated scan is the result: there is no output projection.
    """

    layer: int
    n_embd: int
    d_inner: int
    d_state: int
    d_conv: int
    dt_rank: int
    eps: float
    norms: str = ""
    n_head: int = 0
    leaves: str = ""
    bare: bool = False

    def load(self, w: Weights) -> None:
        if self.d_inner % max(1, self.n_head):
            raise w.wrong("ssm.head_count", self.n_head, f"a divisor of ssm.inner_size = {self.d_inner}")
        p, width = f"blk.{self.layer}.", self.d_inner // max(1, self.n_head)
        self.w_in = w.matrix(p + "ssm_in.weight", 2 * self.d_inner, self.n_embd)
        self.w_x = self._stack(w, p + "ssm_x.weight", self.dt_rank + 2 * self.d_state, width)
        self.w_dt = self._stack(w, p + "ssm_dt.weight", width, self.dt_rank)
        self.bias_in = optional_bias(w, p + "ssm_in.weight", 2 * self.d_inner)
        if not self.bare:
            self.w_out = w.matrix(p + "ssm_out.weight", self.n_embd, self.d_inner)
            self.bias_out = optional_bias(w, p + "ssm_out.weight", self.n_embd)
        taps = w.array(p + "ssm_conv1d.weight", self.d_inner, self.d_conv)
        self.taps = w.keep(np.ascontiguousarray(taps.T))
        self.conv_bias = w.vector(p + "ssm_conv1d.bias", self.d_inner)
        a = decay_logs(w, p + "ssm_a", self.d_inner, self.d_state)
        heads = range(0, self.d_inner, width)
        dt_bias, skip = w.array(p + "ssm_dt.bias", self.d_inner), w.array(p + "ssm_d", self.d_inner)
        self.dt_bias = [w.keep(dt_bias[c : c + width]) for c in heads]
        self.decay = [w.keep(scan_decay(a[c : c + width])) for c in heads]
        self.skip = [w.keep(pad_channels(skip[c : c + width])) for c in heads]
        self.norm_weights = [0, 0, 0]
        if self.norms == "weighted":
            sizes = {"dt": self.dt_rank, "b": self.d_state, "c": self.d_state}
            self.norm_weights = [w.vector(f"{p}ssm_{part}_norm.weight", n) for part, n in sizes.items()]

    def _stack(self, w: Weights, name: str, rows: int, n: int) -> list[Weight]:
        """One matrix per scan."""
        if not self.n_head:
            return [w.matrix(name, rows, n)]
        stack = w.experts(name, self.n_head, rows, n)
        return [stack.one(h) for h in range(self.n_head)]

    def memory(self) -> tuple[RecurrentSpec]:
        n_head = max(1, self.n_head)
        return (
            RecurrentSpec(
                self.layer, self.d_inner, self.d_conv, n_head, self.d_inner // n_head, self.d_state, mixer="Mamba"
            ),
        )

    def build(self, b: Builder, x: Rows, memory: HybridMemory) -> Rows:
        batch = b.batch
        conv = memory.recurrent.conv[self.layer]
        xz = add_bias(b, b.matmul(x, self.w_in, "ssm_in"), self.bias_in)
        inner, gate = xz.columns(0, self.d_inner), xz.columns(self.d_inner, self.d_inner)
        mixed = b.rows(self.d_inner)
        b.op(
            conv1d_silu, ctl=batch.ctl, seg=batch.seg, x=inner, w=self.taps, bias=self.conv_bias,
            state=conv.ctypes.data, stride=conv.strides[0], y=mixed, n_channel=self.d_inner, d_conv=self.d_conv,
        )  # fmt: skip
        y = b.rows(self.d_inner)
        width = self.d_inner // len(self.w_x)
        for h in range(len(self.w_x)):
            x, z, out = (rows.columns(h * width, width) for rows in (mixed, gate, y))
            self._scan(b, h, x, z, out, memory)
        if self.leaves:
            b.named[self.leaves], y = y, b.rows(self.d_inner)
            b.op(elementwise.swiglu, count=batch.n_tok, gate=gate, up=b.named[self.leaves], out=y, n=y.n)
        return y if self.bare else add_bias(b, b.matmul(y, self.w_out, "ssm_out"), self.bias_out)

    def _scan(self, b: Builder, h: int, x: Rows, gate: Rows, y: Rows, memory: HybridMemory) -> None:
        """Run scan `h` on channels x of the convolution's output."""
        batch, state = b.batch, memory.recurrent.ssm[self.layer]
        parts = b.matmul(x, self.w_x[h], "ssm_x")
        dt = parts.columns(0, self.dt_rank)
        B = parts.columns(self.dt_rank, self.d_state)
        C = parts.columns(self.dt_rank + self.d_state, self.d_state)
        if self.norms:
            dt, B, C = (self._norm(b, part, weight) for part, weight in zip((dt, B, C), self.norm_weights, strict=True))
        step = b.matmul(dt, self.w_dt[h], "ssm_dt")
        scan: Kernel = mamba1_scan_ungated if self.leaves else mamba1_scan
        gated: OpFields = {} if self.leaves else {"z": gate}
        b.op(
            scan, nbytes=2 * state[0, 0].nbytes, ctl=batch.ctl, seg=batch.seg, x=x, dt=step,
            dt_bias=self.dt_bias[h], decay=self.decay[h], skip=self.skip[h], b=B, c=C, **gated,
            state=state.ctypes.data + h * state.strides[1], stride=state.strides[0], y=y, n_channel=x.n,
            d_state=self.d_state,
        )  # fmt: skip

    def _norm(self, b: Builder, x: Rows, weight: int) -> Rows:
        out = b.rows(x.n)
        b.op(
            elementwise.rms_norm,
            name="ssm_norm",
            count=b.batch.n_tok,
            x=x,
            weight=weight,
            out=out,
            n=x.n,
            eps=float(self.eps),
        )
        return out
