"""Attention residuals of Kimi K3: a sublayer reads a weighted mix of the residual stream and of its earlier copies.

The copies ("banks") are made before each group of n_block layers, and the stream then starts anew. Each token computes
the weights of its mix.
"""

from dataclasses import dataclass

from ..kernels.rows import elementwise
from ..kernels.rows.hyper import mix_streams
from ..kernels.rows.stream_scores import stream_scores
from ..loading.weights import Weights
from ..memory import HybridMemory
from ..program.builder import Builder, Columns, Rows
from .base import Layer, MemorySpec
from .streams import OnStreams, Streams


@dataclass(frozen=True)
class Banks:
    """The sizes: every n_block of n_layer layers share a bank of n_embd values; eps of all norms."""

    n_embd: int
    n_layer: int
    n_block: int
    eps: float

    @property
    def count(self) -> int:
        """Number of banks after the last layer."""
        return -(-self.n_layer // self.n_block)

    def filled(self, layer: int) -> int:
        """Number of banks before the first sublayer of a layer."""
        return -(-layer // self.n_block)

    def mixed(self, b: Builder, x: Rows, n_bank: int, query: int, count: int) -> Rows:
        """The mix of the stream and the first n_bank banks, [n_embd] per row."""
        n_stream = n_bank + 1
        weights, out = b.rows(n_stream), b.rows(self.n_embd)
        b.op(
            stream_scores, name="res_score", count=count, x=x, query=query, out=weights, n=self.n_embd,
            n_stream=n_stream, eps=float(self.eps),
        )  # fmt: skip
        b.op(mix_streams, name="res_mix", count=count, x=x, weights=weights, out=out, n=self.n_embd, n_stream=n_stream)
        return out


@dataclass
class BankedResidual(OnStreams):
    """A layer on the mix. Stream 0 of a token is the residual stream, the others are banks.

    block   the number of its layer
    norm    the tensor of the norm before the layer
    score   the tensor whose products with the normalized streams are their scores; "": there are no banks yet
    behind  whether it is a later sublayer of the same layer: the first one has filled the bank
    """

    layer: Layer
    block: int
    norm: str
    score: str
    banks: Banks
    behind: bool = False

    @property
    def by_number(self) -> tuple[int, int, bool]:
        """The number of banks that it reads, the number of all banks, and whether it fills one."""
        fills = not self.behind and self.block % self.banks.n_block == 0
        return self.banks.filled(self.block + 1 if self.behind else self.block), self.banks.count, fills

    def load(self, w: Weights) -> None:
        p, n = f"blk.{self.block}.", self.banks.n_embd
        self.norm_weight = w.vector(p + self.norm, n)
        self.query = w.vector(p + self.score, n) if self.score else 0
        self.layer.load(w)

    def memory(self) -> tuple[MemorySpec, ...]:
        return self.layer.memory()

    def write(self, b: Builder, x: Rows, memory: HybridMemory) -> None:
        banks, n, n_tok = self.banks, self.banks.n_embd, b.batch.n_tok
        n_bank, _, fills = self.by_number
        stream = x.columns(0, n)
        mixed = banks.mixed(b, x, n_bank, self.query, n_tok) if n_bank else stream
        y = self.layer.build(b, b.norm(mixed, self.norm_weight, banks.eps), memory)
        if not fills:
            b.op(elementwise.add_rows, name="residual", count=n_tok, x=stream, residual=y, n=n)
            return
        bank = x.columns((1 + n_bank) * n, n)
        b.op(elementwise.copy_rows, name="bank", count=n_tok, x=stream, out=bank, n=n)
        b.op(elementwise.copy_rows, name="residual", count=n_tok, x=y, out=stream, n=n)


class BankedStreams(Streams):
    """The residual stream with its banks; after the last layer the mix of all, by output_res_score."""

    def __init__(self, banks: Banks) -> None:
        super().__init__(1 + banks.count, banks.n_embd)
        self.banks = banks

    def load(self, w: Weights) -> None:
        self.query = w.vector("output_res_score.weight", self.n_embd)

    def begin(self, b: Builder, x: Rows) -> None:
        """Nothing to do: no bank is read before it is written."""

    def end(self, b: Builder, x: Rows, columns: Columns, count: int) -> Rows:
        return self.banks.mixed(b, x, self.banks.count, self.query, count)
