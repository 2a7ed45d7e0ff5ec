"""Manifold-constrained hyper-connections (mHC, arXiv:2512.24880) between several residual streams.

A sublayer reads a mix of the streams and writes to all of them; a matrix whose rows and columns sum to 1 mixes them.
"""

from dataclasses import dataclass

import numpy as np

from ..kernels.rows.hyper import MOST_STREAMS, hyper_weights, mix_streams, write_streams
from ..loading.weights import Weights
from ..memory import HybridMemory
from ..program.builder import Builder, Columns, Ref, Rows
from .base import Layer, MemorySpec
from .streams import OnStreams, Streams

MOST_ITERATIONS = 1000  # some tens suffice to converge


@dataclass(frozen=True)
class HyperSizes:
    """n_stream streams of n_embd values.

    n_iter  of Sinkhorn's iterations
    floor   added to the sums of rows and columns
    eps     of the norm of all streams together, and of the norm before a sublayer
    """

    n_embd: int
    n_stream: int
    n_iter: int
    floor: float
    eps: float

    @property
    def width(self) -> int:
        """Width of all streams together."""
        return self.n_stream * self.n_embd

    def check(self, w: Weights) -> None:
        """Raises FormatError for unsupported sizes."""
        if not 1 <= self.n_stream <= MOST_STREAMS:
            raise w.wrong("hyper_connection.count", self.n_stream, f"1 to {MOST_STREAMS}")
        if not 1 <= self.n_iter <= MOST_ITERATIONS:
            raise w.wrong("hyper_connection.sinkhorn_iterations", self.n_iter, f"1 to {MOST_ITERATIONS}")


class _Mix:
    """Computes the numbers of a mix from all streams: a product with `name`_fn, times _scale, plus _base.

    whole: also the numbers for writing.
    """

    def __init__(self, w: Weights, name: str, sizes: HyperSizes, *, whole: bool) -> None:
        self.sizes, self.n_iter = sizes, sizes.n_iter if whole else 0
        h = sizes.n_stream
        n = (2 + h) * h if whole else h
        self.fn = w.matrix(name + "_fn.weight", n, sizes.width)
        self.base = w.vector(name + "_base.weight", n)
        self.scale = w.vector(name + "_scale.weight", 3 if whole else 1)

    def numbers(self, b: Builder, x: Rows, columns: Columns, count: int) -> Rows:
        """[pre | post | C] of `hyper_weights`, or only pre, for rows of all streams."""
        product, sizes = b.matmul(x, self.fn, "hc_fn", columns), self.sizes
        out = b.rows(self.fn.rows)
        b.op(
            hyper_weights, name="hc_weights", count=count, x=x, product=product, base=self.base, scale=self.scale,
            out=out, n=x.n, n_stream=sizes.n_stream, n_iter=self.n_iter, eps=float(sizes.eps),
            floor=float(sizes.floor),
        )  # fmt: skip
        return out


def _mixed(b: Builder, x: Rows, weights: Ref | int, ld: int, sizes: HyperSizes, count: int) -> Rows:
    """The weighted sum of each row's streams, [n_embd]; the rows of weights are `ld` bytes apart."""
    out = b.rows(sizes.n_embd)
    b.op(
        mix_streams, name="hc_mix", count=count, x=x, weights=weights, ldweights=ld, out=out, n=sizes.n_embd,
        n_stream=sizes.n_stream,
    )  # fmt: skip
    return out


@dataclass
class HyperConnected(OnStreams):
    """A layer on a mix of the streams.

    name   of the tensors of the mix: `name`_fn.weight and so on
    norm   the tensor of the norm before the layer
    """

    layer: Layer
    name: str
    norm: str
    sizes: HyperSizes

    def load(self, w: Weights) -> None:
        self.sizes.check(w)
        self.mix = _Mix(w, self.name, self.sizes, whole=True)
        self.norm_weight = w.vector(self.norm, self.sizes.n_embd)
        self.layer.load(w)

    def memory(self) -> tuple[MemorySpec, ...]:
        return self.layer.memory()

    def write(self, b: Builder, x: Rows, memory: HybridMemory) -> None:
        h, n_tok = self.sizes.n_stream, b.batch.n_tok
        numbers = self.mix.numbers(b, x, b.tokens, n_tok)
        mixed = _mixed(b, x, numbers.ref, numbers.ld, self.sizes, n_tok)
        y = self.layer.build(b, b.norm(mixed, self.norm_weight, self.sizes.eps), memory)
        b.op(
            write_streams(h),
            name="hc_write",
            count=n_tok,
            x=x,
            y=y,
            post=numbers.columns(h, h),
            comb=numbers.columns(2 * h, h * h),
            n=self.sizes.n_embd,
        )


class MeanOfStreams(Streams):
    """After the last layer: the result is the mean of the streams."""

    def __init__(self, sizes: HyperSizes) -> None:
        super().__init__(sizes.n_stream, sizes.n_embd)
        self.sizes = sizes

    def load(self, w: Weights) -> None:
        self.shares = w.keep(np.full(self.n, 1 / self.n, np.float32))

    def end(self, b: Builder, x: Rows, columns: Columns, count: int) -> Rows:
        return _mixed(b, x, self.shares, 0, self.sizes, count)


class LearnedMixOfStreams(Streams):
    """After the last layer: the result is a mix of the streams, with tensors `name`_fn, _base and _scale."""

    def __init__(self, sizes: HyperSizes, name: str = "output_hc") -> None:
        super().__init__(sizes.n_stream, sizes.n_embd)
        self.sizes, self.name = sizes, name

    def load(self, w: Weights) -> None:
        self.mix = _Mix(w, self.name, self.sizes, whole=False)

    def end(self, b: Builder, x: Rows, columns: Columns, count: int) -> Rows:
        numbers = self.mix.numbers(b, x, columns, count)
        return _mixed(b, x, numbers.ref, numbers.ld, self.sizes, count)
