"""Short causal convolutions of rows by channels, and layers whose results go through one (Inkling)."""

import math
from dataclasses import dataclass

import numpy as np

from ..kernels.recurrent.conv import conv1d
from ..kernels.recurrent.conv_windows import conv1d_windows
from ..kernels.rows.mixed_windows import mixed_windows
from ..loading.weights import Weights
from ..memory import HybridMemory, RecurrentSpec
from ..program.builder import Builder, Rows, round_up
from .base import Layer, MemorySpec


@dataclass
class Convolution:
    """d_conv taps for each of n channels, from ssm_conv1d_`part`, times its scale if the file has one.

    block  the layer whose weights it uses; -1: its own
    """

    layer: int
    part: str
    n: int
    d_conv: int
    block: int = -1

    @property
    def _prefix(self) -> str:
        return f"blk.{self.block if self.block >= 0 else self.layer}.ssm_conv1d_"

    def load(self, w: Weights) -> None:
        name = self._prefix + self.part
        taps = w.array(name + ".weight", self.n, self.d_conv)
        if name + ".scale" in w:
            taps = taps * w.array(name + ".scale", 1)
        self.taps = w.keep(np.ascontiguousarray(taps.T))

    def memory(self) -> RecurrentSpec:
        return RecurrentSpec(self.layer, self.n, self.d_conv, mixer="short convolution", part=self.part)

    def of(self, b: Builder, x: Rows, memory: HybridMemory, source: Rows) -> Rows:
        """The convolved rows x, which are projections of `source`."""
        batch, y, state = b.batch, b.rows(self.n), memory.recurrent.conv[self.memory().key]
        b.op(
            conv1d, name="conv_" + self.part, ctl=batch.ctl, seg=batch.seg, x=x, w=self.taps, state=state.ctypes.data,
            stride=state.strides[0], y=y, n_channel=self.n, d_conv=self.d_conv,
        )  # fmt: skip
        return y


@dataclass
class ChangingConvolution(Convolution):
    """A convolution whose taps each token changes itself: ssm_conv1d_dyn_`part`, times 1 / sqrt(2 d_conv + 1), makes
    d_conv numbers from `source`, newest tap first, for each of n_head heads of channels."""

    n_head: int = 0
    n_source: int = 0

    def load(self, w: Weights) -> None:
        super().load(w)
        name = f"{self._prefix}dyn_{self.part}.weight"
        self.w_changes = w.matrix(name, self.n_head * self.d_conv, self.n_source)
        self.unchanged = w.keep(np.ones(self.n, np.float32)), w.keep(np.zeros(self.n, np.float32))

    def of(self, b: Builder, x: Rows, memory: HybridMemory, source: Rows) -> Rows:
        batch, y, state = b.batch, b.rows(self.n), memory.recurrent.conv[self.memory().key]
        width = round_up(self.n, 16)
        windows = b.rows(self.d_conv * width)
        one, zero = self.unchanged
        b.op(
            conv1d_windows, name="conv_" + self.part, ctl=batch.ctl, seg=batch.seg, x=x, w=one, bias=zero,
            state=state.ctypes.data, stride=state.strides[0], y=windows, part=4 * width, n_channel=self.n, d_conv=1,
            n_window=self.d_conv,
        )  # fmt: skip
        changes = b.matmul(source, self.w_changes, "conv_dyn_" + self.part)
        b.op(
            mixed_windows, name="conv_" + self.part, count=batch.n_tok, x=windows, part=4 * width, w=self.taps,
            more=changes, y=y, n_head=self.n_head, n=self.n // self.n_head, n_window=self.d_conv,
            scale=1 / math.sqrt(2 * self.d_conv + 1),
        )  # fmt: skip
        return y


@dataclass
class Convolved:
    """A layer whose results go through a convolution."""

    layer: Layer
    convolution: Convolution

    def load(self, w: Weights) -> None:
        self.layer.load(w)
        self.convolution.load(w)

    def memory(self) -> tuple[MemorySpec, ...]:
        return (*self.layer.memory(), self.convolution.memory())

    def build(self, b: Builder, x: Rows, memory: HybridMemory) -> Rows:
        return self.convolution.of(b, self.layer.build(b, x, memory), memory, x)
