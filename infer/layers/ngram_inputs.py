"""Embeddings of n-grams that a layer adds to residual streams. Of Qwen3.8-Flash-Next.

The last tokens are hashed to rows of a large table, each stream gates them, and a short dilated convolution adds those
of earlier tokens. Hashed n-gram memories: arXiv:2601.07372
"""

import math
from dataclasses import dataclass

import numpy as np

from ..kernels.recurrent.conv import conv1d_silu
from ..kernels.recurrent.conv_windows import conv1d_windows
from ..kernels.rows import elementwise
from ..kernels.rows.gated_norm import gated_norm
from ..kernels.rows.ngrams import gate_streams, hash_ngrams, numbered_tokens
from ..loading.weights import Weights
from ..memory import HybridMemory, RecurrentSpec
from ..program.builder import Builder, Ref, Rows
from .base import MemorySpec
from .streams import OnStreams

IDS, CONV = "ngram", "ple"  # the states: ids of the last tokens, inputs of the convolution
MOST_TOKENS = 1 << 24  # ids below, plus 1, are exact in f32
TABLE = "per_layer_token_embd.weight"


@dataclass(frozen=True)
class Ngrams:
    """The rows of the table for n-grams of 2 .. n_gram tokens: n_each for every n, see kernels/rows/ngrams.py.

    factors         of the tokens, the last one first
    sizes, offsets  of the parts of the table
    end             the token that ends a text: tokens before it are ignored
    """

    n_gram: int
    n_each: int
    end: int
    factors: tuple[int, ...]
    sizes: tuple[int, ...]
    offsets: tuple[int, ...]

    @property
    def n_row(self) -> int:
        """Rows per token."""
        return (self.n_gram - 1) * self.n_each


@dataclass
class NgramInputs(OnStreams):
    """n_stream streams of n_embd values; rows of the table have d_row values.

    taps: of the convolution, n_gram tokens apart; eps: of the norms of streams.
    """

    layer: int
    n_embd: int
    n_stream: int
    d_row: int
    taps: int
    eps: float
    ngrams: Ngrams

    @property
    def _width(self) -> int:
        return self.n_stream * self.n_embd

    @property
    def _span(self) -> int:
        """Number of tokens that the convolution spans."""
        return (self.taps - 1) * self.ngrams.n_gram + 1

    def load(self, w: Weights) -> None:
        p, n, d = f"blk.{self.layer}.ple_", self.n_embd, self.ngrams.n_row * self.d_row
        self.table = w.embedding(TABLE, self.d_row)
        self._check(w)
        self.w_key, self.w_value = w.matrix(p + "key.weight", self._width, d), w.matrix(p + "value.weight", n, d)
        self.norms = {part: w.vector(f"{p}norm_{part}.weight", self._width) for part in ("key", "query", "conv")}
        stored = w.array(p + "conv1d.weight", self._width, self.taps)
        taps = np.zeros((self._span, self._width), np.float32)  # a dilated convolution: other taps are 0
        taps[:: self.ngrams.n_gram] = stored.T
        self.conv = w.keep(taps)
        self.one, self.none = w.keep(np.ones(1, np.float32)), w.keep(np.zeros(1, np.float32))
        g = self.ngrams
        self.factors, self.sizes, self.offsets = (
            w.keep(np.array(x, np.int64)) for x in (g.factors, g.sizes, g.offsets)
        )

    def _check(self, w: Weights) -> None:
        g = self.ngrams
        for key, values, n in (
            ("layer_multipliers", g.factors, g.n_gram), ("head_offsets", g.offsets, g.n_row),
            ("head_vocab_sizes", g.sizes, g.n_row),
        ):  # fmt: skip
            if len(values) != n:
                raise w.wrong(f"ple.{key}", list(values), f"{n} numbers")
        for offset, size in zip(g.offsets, g.sizes, strict=True):
            if size < 1 or offset < 0 or offset + size > self.table.rows:
                raise w.wrong("ple.head_vocab_sizes", size, f"a part of the {self.table.rows} rows, from {offset} on")
        if w.gguf.info("token_embd.weight").shape[0] >= MOST_TOKENS:
            raise w.wrong("ple.ngram_size", g.n_gram, f"a vocabulary of fewer than {MOST_TOKENS} tokens")

    def memory(self) -> tuple[MemorySpec, ...]:
        return (
            RecurrentSpec(self.layer, 1, self.ngrams.n_gram, mixer="n-gram embeddings", part=IDS),
            RecurrentSpec(self.layer, self._width, self._span, mixer="n-gram embeddings", part=CONV),
        )

    def write(self, b: Builder, x: Rows, memory: HybridMemory) -> None:
        n_tok, embedded = b.batch.n_tok, self._embedded(b, memory)
        key = self._normed(b, b.matmul(embedded, self.w_key, "ple_key"), "key")
        value, gated = b.matmul(embedded, self.w_value, "ple_value"), b.rows(self._width)
        b.op(
            gate_streams, name="ple_gate", count=n_tok, key=key, query=self._normed(b, x, "query"), value=value,
            out=gated, n_stream=self.n_stream, n=self.n_embd, scale=1 / math.sqrt(self.n_embd),
        )  # fmt: skip
        state, out = memory.recurrent.conv[self.layer, CONV], b.rows(self._width)
        b.op(
            conv1d_silu, name="ple_conv", ctl=b.batch.ctl, seg=b.batch.seg, x=self._normed(b, gated, "conv"),
            w=self.conv, state=state.ctypes.data, stride=state.strides[0], y=out, n_channel=out.n, d_conv=self._span,
        )  # fmt: skip
        for rows in (gated, out):
            b.op(elementwise.add_rows, name="ple_add", count=n_tok, x=x, residual=rows, n=x.n)

    def _embedded(self, b: Builder, memory: HybridMemory) -> Rows:
        """The rows of the table for each token's n-grams, side by side."""
        g, batch, state = self.ngrams, b.batch, memory.recurrent.conv[self.layer, IDS]
        ids, windows, out = b.rows(1), b.rows(g.n_gram), b.rows(g.n_row * self.d_row)
        b.op(numbered_tokens, name="ple_ids", count=batch.n_tok, tokens=batch.tokens, out=ids)
        b.op(
            conv1d_windows, name="ple_window", ctl=batch.ctl, seg=batch.seg, x=ids, w=self.one, bias=self.none,
            state=state.ctypes.data, stride=state.strides[0], y=windows, part=4, n_channel=1, d_conv=1,
            n_window=g.n_gram,
        )  # fmt: skip
        rows = Ref(b.buffer(8 * g.n_row * b.capacity))
        b.op(
            hash_ngrams, name="ple_hash", count=batch.n_tok, x=windows, n_gram=g.n_gram, n_each=g.n_each, end=g.end,
            factors=self.factors, sizes=self.sizes, offsets=self.offsets, rows=rows,
        )  # fmt: skip
        b.op(
            elementwise.EMBED[self.table.kind], name="ple_embed", count=batch.n_tok, tokens=rows,
            table=self.table.address, stride=self.table.stride, out=out, n=self.d_row, n_part=g.n_row,
        )  # fmt: skip
        return out

    def _normed(self, b: Builder, x: Rows, part: str) -> Rows:
        """RMS norm of each stream."""
        out = b.rows(x.n)
        b.op(
            gated_norm, name="ple_norm", count=b.batch.n_tok, y=x, weight=self.norms[part], stride=4 * self.n_embd,
            out=out, n_group=self.n_stream, n=self.n_embd, eps=float(self.eps),
        )  # fmt: skip
        return out
