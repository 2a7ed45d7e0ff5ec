"""The blocks of Gemma 3n: AltUp, which computes on one of several residual streams, and LAuReL.

AltUp: Baykal et al. 2023, arXiv:2301.13310. LAuReL adds a low-rank residual to attention: Menghani et al. 2024,
arXiv:2411.07501.
"""

import math
from dataclasses import dataclass

import numpy as np

from ..kernels.recurrent.rwkv import tanh_rows
from ..kernels.rows import elementwise
from ..kernels.rows.affine import affine_rows
from ..kernels.rows.altup import correct_streams, gaussian_top, match_magnitude, predict_streams
from ..loading.weights import Weights
from ..memory import HybridMemory
from ..program.builder import Builder, Columns, Rows
from .base import Layer, MemorySpec
from .feed_forward import GatedFeedForward
from .per_layer_inputs import PerLayerGate, PerLayerInputs
from .streams import OnStreams, Streams

FLOOR = 1e-5  # smallest divisor: a mean square of a stream that is scaled


@dataclass(frozen=True)
class AltUpSizes:
    """n_stream streams of n_embd values; layers compute on stream `active`."""

    n_embd: int
    n_stream: int
    active: int
    eps: float

    def check(self, w: Weights) -> None:
        """Raises FormatError for unsupported sizes."""
        if not 2 <= self.n_stream <= 64:
            raise w.wrong("altup.num_inputs", self.n_stream, "2 to 64")
        if self.active >= self.n_stream:
            raise w.wrong("altup.active_idx", self.active, f"less than altup.num_inputs = {self.n_stream}")


class AltUpStreams(Streams):
    """Begins and ends the streams.

    The other streams begin as products with the embedding, scaled to its magnitude. After the last layer each goes
    through another product, is scaled to the first stream's magnitude, and the mean of all is the result.
    """

    def __init__(self, sizes: AltUpSizes) -> None:
        super().__init__(sizes.n_stream, sizes.n_embd)
        self.sizes = sizes

    def load(self, w: Weights) -> None:
        n = self.n_embd
        self.into, self.back = (w.experts(f"altup_{part}.weight", self.n - 1, n, n) for part in ("proj", "unembd_proj"))

    def begin(self, b: Builder, x: Rows) -> None:
        first, n_tok = x.columns(0, self.n_embd), b.batch.n_tok
        embedded = b.rows(self.n_embd)
        b.op(elementwise.copy_rows, name="altup", count=n_tok, x=first, out=embedded, n=self.n_embd)
        for i in range(1, self.n):
            made = b.matmul(embedded, self.into.one(i - 1), "altup_proj")
            b.op(match_magnitude, count=n_tok, x=embedded, y=made, n=self.n_embd, floor=FLOOR)
            stream = x.columns(i * self.n_embd, self.n_embd)
            b.op(elementwise.copy_rows, name="altup", count=n_tok, x=made, out=stream, n=self.n_embd)

    def end(self, b: Builder, x: Rows, columns: Columns, count: int) -> Rows:
        first, total = x.columns(0, self.n_embd), b.rows(self.n_embd)
        b.op(elementwise.copy_rows, name="altup", count=count, x=first, out=total, n=self.n_embd)
        for i in range(1, self.n):
            stream = b.rows(self.n_embd)
            source = x.columns(i * self.n_embd, self.n_embd)
            b.op(elementwise.copy_rows, name="altup", count=count, x=source, out=stream, n=self.n_embd)
            made = b.matmul(stream, self.back.one(i - 1), "altup_unembd_proj", columns)
            b.op(match_magnitude, count=count, x=first, y=made, n=self.n_embd, floor=FLOOR)
            b.op(elementwise.add_rows, name="altup", count=count, x=total, residual=made, n=self.n_embd)
        b.op(elementwise.scale_rows, name="altup", count=count, x=total, n=self.n_embd, scale=1 / self.n)
        return total


@dataclass
class AltUpBlock(OnStreams):
    """A whole block. From the predicted active stream a and h = norm(a) it computes

        y = (a + A(h) + h + norm(R L h)) / sqrt(2);  z = y + F(norm(y))

    with attention A and feed-forward part F, which normalize their results. z corrects the streams. The corrected
    active stream, scaled, goes through `gate`, and the result is added to all streams but the first.
    """

    layer: int
    attention: Layer
    feed_forward: Layer
    gate: PerLayerGate
    sizes: AltUpSizes

    def load(self, w: Weights) -> None:
        self.sizes.check(w)
        p, n, n_stream = f"blk.{self.layer}.", self.sizes.n_embd, self.sizes.n_stream
        self.norms = {part: w.vector(f"{p}{part}_norm.weight", n) for part in ("attn", "ffn", "laurel_post")}
        # the factor after the norm is part of its weights
        self.router_norm = w.vector(p + "altup_router_norm.weight", n, lambda x: x / np.float32(n))
        self.router = w.matrix(p + "altup_router.weight", n_stream, n)
        self.predict = w.matrix(p + "altup_predict_coef.weight", n_stream * n_stream, n_stream)
        self.correct = w.matrix(p + "altup_correct_coef.weight", n_stream, n_stream)
        self.scale = w.vector(p + "altup_correct_scale.weight", n)
        self.zeros = w.keep(np.zeros(n, np.float32))
        rank = w.gguf.info(p + "laurel_l.weight").shape[0]
        self.left = w.matrix(p + "laurel_l.weight", rank, n)
        self.right = w.matrix(p + "laurel_r.weight", n, rank)
        for part in (self.attention, self.feed_forward, self.gate):
            part.load(w)

    def memory(self) -> tuple[MemorySpec, ...]:
        return self.attention.memory()

    def write(self, b: Builder, x: Rows, memory: HybridMemory) -> None:
        s, n_tok = self.sizes, b.batch.n_tok
        predicted = b.rows(x.n)
        mix = b.matmul(self._modalities(b, self._copied(b, self._stream(x, s.active))), self.predict, "altup_predict")
        b.op(predict_streams, count=n_tok, x=x, mix=mix, out=predicted, n=s.n_embd, n_stream=s.n_stream)
        made = self._copied(b, self._stream(predicted, s.active))
        self._compute(b, made, memory)
        mix = b.matmul(self._modalities(b, made), self.correct, "altup_correct")
        b.op(
            correct_streams, count=n_tok, x=x, predicted=predicted, made=made, mix=mix, n=s.n_embd,
            n_stream=s.n_stream, active=s.active,
        )  # fmt: skip
        first = self._copied(b, self._stream(x, s.active))
        b.op(affine_rows, name="altup_scale", count=n_tok, x=first, weight=self.scale, bias=self.zeros, n=s.n_embd)
        more = self.gate.build(b, first, memory)
        for i in range(1, s.n_stream):
            b.op(elementwise.add_rows, name="altup", count=n_tok, x=self._stream(x, i), residual=more, n=s.n_embd)

    def _compute(self, b: Builder, a: Rows, memory: HybridMemory) -> None:
        """Replaces `a`, the predicted active stream, by z of the class's formulas."""
        s, n_tok = self.sizes, b.batch.n_tok
        h = b.norm(a, self.norms["attn"], s.eps)
        low = b.norm(
            b.matmul(b.matmul(h, self.left, "laurel_l"), self.right, "laurel_r"), self.norms["laurel_post"], s.eps
        )
        b.op(elementwise.add_rows, name="laurel", count=n_tok, x=low, residual=h, n=s.n_embd)
        for y in (self.attention.build(b, h, memory), low):
            b.op(elementwise.add_rows, name="laurel", count=n_tok, x=a, residual=y, n=s.n_embd)
        b.op(elementwise.scale_rows, name="laurel", count=n_tok, x=a, n=s.n_embd, scale=math.sqrt(0.5))
        z = self.feed_forward.build(b, b.norm(a, self.norms["ffn"], s.eps), memory)
        b.op(elementwise.add_rows, name="ffn", count=n_tok, x=a, residual=z, n=s.n_embd)

    def _modalities(self, b: Builder, x: Rows) -> Rows:
        """The tanh of the router's product, [n_stream]."""
        routed = b.matmul(b.norm(x, self.router_norm, self.sizes.eps), self.router, "altup_router")
        b.op(tanh_rows, name="altup", count=b.batch.n_tok, x=routed, n=routed.n)
        return routed

    def _stream(self, x: Rows, i: int) -> Rows:
        return x.columns(i * self.sizes.n_embd, self.sizes.n_embd)

    def _copied(self, b: Builder, x: Rows) -> Rows:
        out = b.rows(x.n)
        b.op(elementwise.copy_rows, name="altup", count=b.batch.n_tok, x=x, out=out, n=x.n)
        return out


@dataclass
class FirstOnStreams(OnStreams):
    """Computes the embeddings that tokens have for every layer, before the first block."""

    inputs: PerLayerInputs

    @property
    def after_inputs(self) -> Layer:
        return self.inputs.first

    def load(self, w: Weights) -> None:
        self.inputs.load(w)

    def memory(self) -> tuple[MemorySpec, ...]:
        return self.inputs.memory()

    def write(self, b: Builder, x: Rows, memory: HybridMemory) -> None:
        self.inputs.build(b, x, memory)


@dataclass
class SparseFeedForward(GatedFeedForward):
    """Gates are reduced by mean + `deviations` standard deviations of the token's gates; negative ones become 0."""

    deviations: float = 0.0

    def limit_gate(self, b: Builder, gate: Rows) -> None:
        b.op(gaussian_top, count=b.batch.n_tok, x=gate, n=gate.n, deviations=float(self.deviations))
