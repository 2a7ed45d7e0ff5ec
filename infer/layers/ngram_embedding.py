"""Embeddings of n-grams, added to token embeddings before the first layer. LongCat-Flash-Lite, arXiv:2601.21204"""

from dataclasses import dataclass

import numpy as np

from ..kernels.recurrent.conv_windows import conv1d_windows
from ..kernels.rows import elementwise
from ..kernels.rows.ngrams import numbered_tokens, sum_ngrams
from ..loading.weights import Weights
from ..memory import HybridMemory, RecurrentSpec
from ..program.builder import Builder, Ref, Rows
from .base import MemorySpec
from .streams import OnStreams

IDS = "ngram"  # the state: ids of the last tokens
TABLE = "ngram_embd.weight"
MOST_TOKENS = 1 << 24  # ids below, plus 1, are exact in f32


@dataclass
class NgramEmbedding(OnStreams):
    """x = (x + sum over parts of P e) / (1 + number of parts); e: a row of the part of the table, P its matrix.

    For n-grams of 2, 3, .. n_gram tokens there are n_each parts each, of n_row + 1, n_row + 3, ... rows. The row is the
    number with the n-gram's tokens as digits to the base `base`, modulo the part's size. Earlier tokens up to the last
    `end` count as 0.
    """

    layer: int
    n_embd: int
    n_gram: int
    n_each: int
    n_row: int
    base: int
    end: int

    @property
    def n_part(self) -> int:
        return (self.n_gram - 1) * self.n_each

    def load(self, w: Weights) -> None:
        if not 2 <= self.n_gram <= 64:
            raise w.wrong("ngram.size", self.n_gram, "2 to 64")
        if not 1 <= self.n_each <= self.n_embd // (self.n_gram - 1):
            raise w.wrong("ngram.count", self.n_each, f"1 to {self.n_embd // (self.n_gram - 1)}")
        if not 1 <= self.base < MOST_TOKENS:
            raise w.wrong("ngram.base", self.base, f"less than {MOST_TOKENS} tokens")
        d = self.n_embd // self.n_part
        self.table = w.embedding(TABLE, d)
        sizes = [self.n_row + 2 * j + 1 for j in range(self.n_part)]
        if self.n_row < 0 or sum(sizes) != self.table.rows:
            raise w.wrong("ngram.rows", self.n_row, f"parts of {self.table.rows} rows together")
        self.matrices = [w.matrix(f"ngram_proj.{j}.weight", self.n_embd, d) for j in range(self.n_part)]
        factors = [[pow(self.base, i, size) for i in range(self.n_gram)] for size in sizes]
        offsets = np.cumsum([0, *sizes[:-1]])
        self.factors, self.sizes, self.offsets = (w.keep(np.array(x, np.int64)) for x in (factors, sizes, offsets))
        self.one, self.none = w.keep(np.ones(1, np.float32)), w.keep(np.zeros(1, np.float32))

    def memory(self) -> tuple[MemorySpec, ...]:
        return (RecurrentSpec(self.layer, 1, self.n_gram, mixer="n-gram embeddings", part=IDS),)

    def write(self, b: Builder, x: Rows, memory: HybridMemory) -> None:
        batch, state, d = b.batch, memory.recurrent.conv[self.layer, IDS], self.n_embd // self.n_part
        ids, windows = b.rows(1), b.rows(self.n_gram)
        b.op(numbered_tokens, name="ngram_ids", count=batch.n_tok, tokens=batch.tokens, out=ids)
        b.op(
            conv1d_windows, name="ngram_window", ctl=batch.ctl, seg=batch.seg, x=ids, w=self.one, bias=self.none,
            state=state.ctypes.data, stride=state.strides[0], y=windows, part=4, n_channel=1, d_conv=1,
            n_window=self.n_gram,
        )  # fmt: skip
        rows, found = Ref(b.buffer(8 * self.n_part * b.capacity)), b.rows(self.n_part * d)
        b.op(
            sum_ngrams, name="ngram_hash", count=batch.n_tok, x=windows, n_gram=self.n_gram, n_each=self.n_each,
            end=self.end, factors=self.factors, sizes=self.sizes, offsets=self.offsets, rows=rows,
        )  # fmt: skip
        b.op(
            elementwise.EMBED[self.table.kind], name="ngram_embed", count=batch.n_tok, tokens=rows,
            table=self.table.address, stride=self.table.stride, out=found, n=d, n_part=self.n_part,
        )  # fmt: skip
        for j, matrix in enumerate(self.matrices):
            more = b.matmul(found.columns(j * d, d), matrix, "ngram_proj")
            b.op(elementwise.add_rows, name="ngram_add", count=batch.n_tok, x=x, residual=more, n=x.n)
        b.op(elementwise.scale_rows, name="ngram_scale", count=batch.n_tok, x=x, n=x.n, scale=1 / (1 + self.n_part))
