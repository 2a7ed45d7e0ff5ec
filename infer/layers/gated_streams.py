"""Gated residual streams of Qwen3.8-Flash-Next: a sublayer reads a gated mix of all streams and writes to each.

Gates are per value; each stream takes its own share of the result. A relative of hyper-connections, arXiv:2409.19606,
without a matrix that mixes the streams.
"""

from dataclasses import dataclass

import numpy as np

from ..kernels.rows.gated_norm import gated_norm
from ..kernels.rows.gated_streams import inject_into_streams, mix_gated_streams, silu_rows
from ..loading.weights import Weights
from ..memory import HybridMemory
from ..program.builder import Builder, Columns, Rows
from .base import Layer, MemorySpec
from .streams import OnStreams, Streams


@dataclass(frozen=True)
class GatedSizes:
    """n_stream streams of n_embd values; rank: of the low-rank gates; eps: of the norm of each stream."""

    n_embd: int
    n_stream: int
    rank: int
    eps: float

    @property
    def width(self) -> int:
        """Width of all streams together."""
        return self.n_stream * self.n_embd


class _Mix:
    """input = mean over streams of sigmoid(up(silu(down(x) / n_stream))) * x, where x is the norm of each stream.

    Tensors are `name`_norm, _down and _up; with `whole` also _inject, for the shares.
    """

    def __init__(self, w: Weights, name: str, sizes: GatedSizes, *, whole: bool) -> None:
        self.sizes, n = sizes, sizes.width
        # everything computed from the norms is divided by n_stream: as part of the weights it costs nothing
        self.norm = w.vector(name + "_norm.weight", n, lambda x: x / np.float32(sizes.n_stream))
        self.down = w.matrix(name + "_down.weight", sizes.rank, n)
        self.up = w.matrix(name + "_up.weight", n, sizes.rank)
        self.inject = w.matrix(name + "_inject.weight", sizes.n_stream, n) if whole else None

    def build(self, b: Builder, x: Rows, columns: Columns, count: int) -> tuple[Rows, Rows]:
        """The mix [n_embd] of rows of all streams, and the norms of the streams."""
        sizes, normed, out = self.sizes, b.rows(x.n), b.rows(self.sizes.n_embd)
        b.op(
            gated_norm, name="hc_norm", count=count, y=x, weight=self.norm, stride=4 * sizes.n_embd, out=normed,
            n_group=sizes.n_stream, n=sizes.n_embd, eps=float(sizes.eps),
        )  # fmt: skip
        low = b.matmul(normed, self.down, "hc_down", columns)
        b.op(silu_rows, name="hc_silu", count=count, x=low, n=low.n)
        gates = b.matmul(low, self.up, "hc_up", columns)
        b.op(
            mix_gated_streams,
            name="hc_mix",
            count=count,
            x=normed,
            gate=gates,
            out=out,
            n_stream=sizes.n_stream,
            n=sizes.n_embd,
        )
        return out, normed


@dataclass
class GatedResidual(OnStreams):
    """x[s] += 2 sigmoid(inject(x)[s] / n_stream) layer(input), with tensors `name`_...; see `_Mix`."""

    layer: Layer
    name: str
    sizes: GatedSizes

    def load(self, w: Weights) -> None:
        self.mix = _Mix(w, self.name, self.sizes, whole=True)
        self.layer.load(w)

    def memory(self) -> tuple[MemorySpec, ...]:
        return self.layer.memory()

    def write(self, b: Builder, x: Rows, memory: HybridMemory) -> None:
        assert self.mix.inject is not None
        rows, normed = self.mix.build(b, x, b.tokens, b.batch.n_tok)
        weights = b.matmul(normed, self.mix.inject, "hc_inject")
        y = self.layer.build(b, rows, memory)
        b.op(
            inject_into_streams,
            name="hc_write",
            count=b.batch.n_tok,
            x=x,
            y=y,
            weights=weights,
            n_stream=self.sizes.n_stream,
            n=self.sizes.n_embd,
        )


class GatedMixOfStreams(Streams):
    """After the last layer: the result is such a mix of the streams, with tensors `name`_norm, _down and _up."""

    def __init__(self, sizes: GatedSizes, name: str = "output_hc") -> None:
        super().__init__(sizes.n_stream, sizes.n_embd)
        self.sizes, self.name = sizes, name

    def load(self, w: Weights) -> None:
        self.mix = _Mix(w, self.name, self.sizes, whole=False)

    def end(self, b: Builder, x: Rows, columns: Columns, count: int) -> Rows:
        return self.mix.build(b, x, columns, count)[0]
