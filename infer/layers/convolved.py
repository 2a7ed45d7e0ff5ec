"""Short causal convolutions of rows by channels, and layers whose results go through one (Inkling)."""

from dataclasses import dataclass

import numpy as np

from ..kernels.recurrent.conv import conv1d
from ..loading.weights import Weights
from ..memory import HybridMemory, RecurrentSpec
from ..program.builder import Builder, Rows
from .base import Layer, MemorySpec


@dataclass
class Convolution:
    """d_conv taps for each of n channels, from ssm_conv1d_`part`, times its scale if the file has one."""

    layer: int
    part: str
    n: int
    d_conv: int

    def load(self, w: Weights) -> None:
        name = f"blk.{self.layer}.ssm_conv1d_{self.part}"
        taps = w.array(name + ".weight", self.n, self.d_conv)
        if name + ".scale" in w:
            taps = taps * w.array(name + ".scale", 1)
        self.taps = w.keep(np.ascontiguousarray(taps.T))

    def memory(self) -> RecurrentSpec:
        return RecurrentSpec(self.layer, self.n, self.d_conv, mixer="short convolution", part=self.part)

    def of(self, b: Builder, x: Rows, memory: HybridMemory) -> Rows:
        """The convolved rows."""
        batch, y, state = b.batch, b.rows(self.n), memory.recurrent.conv[self.memory().key]
        b.op(
            conv1d, name="conv_" + self.part, ctl=batch.ctl, seg=batch.seg, x=x, w=self.taps, state=state.ctypes.data,
            stride=state.strides[0], y=y, n_channel=self.n, d_conv=self.d_conv,
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
        return self.convolution.of(b, self.layer.build(b, x, memory), memory)
