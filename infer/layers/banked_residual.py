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
    """The sizes: every n_block of n_layer layers share a bank of n_embd values; eps of all norms.

    score_eps  of the norms before scores; 0: eps
    normed     streams are mixed after these norms, which have no weights
    """

    n_embd: int
    n_layer: int
    n_block: int
    eps: float
    score_eps: float = 0.0
    normed: bool = False

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
            n_stream=n_stream, eps=float(self.score_eps or self.eps), normed=int(self.normed),
        )  # fmt: skip
        b.op(mix_streams, name="res_mix", count=count, x=x, weights=weights, out=out, n=self.n_embd, n_stream=n_stream)
        return out


@dataclass
class BankedResidual(OnStreams):
    """A layer on the mix. Stream 0 of a token is the residual stream, the others are banks.

    block   the layer whose weights it uses
    norm    the tensor of the norm before the layer
    score   the tensor whose products with the normalized streams are their scores; "": there are no banks yet
    behind  whether it is a later sublayer of the same layer: the first one has filled the bank
    place   number of its layer among the layers that share banks; -1: `block`
    """

    layer: Layer
    block: int
    norm: str
    score: str
    banks: Banks
    behind: bool = False
    place: int = -1

    @property
    def by_number(self) -> tuple[int, int, bool]:
        """The number of banks that it reads, the number of all banks, and whether it fills one."""
        place = self.place if self.place >= 0 else self.block
        fills = not self.behind and place % self.banks.n_block == 0
        return self.banks.filled(place + 1 if self.behind else place), self.banks.count, fills

    def load(self, w: Weights) -> None:
        p, n = f"blk.{self.block}.", self.banks.n_embd
        self.norm_weight = w.vector(p + self.norm, n)
        has_query = self.score and (self.by_number[0] or p + self.score in w)
        self.query = w.vector(p + self.score, n) if has_query else 0
        self.layer.load(w)

    def memory(self) -> tuple[MemorySpec, ...]:
        return self.layer.memory()

    def write(self, b: Builder, x: Rows, memory: HybridMemory) -> None:
        n, n_tok = self.banks.n_embd, b.batch.n_tok
        n_bank, _, fills = self.by_number
        stream = x.columns(0, n)
        y = self.layer.build(b, self.inputs(b, x, n_bank), memory)
        if not fills:
            b.op(elementwise.add_rows, name="residual", count=n_tok, x=stream, residual=y, n=n)
            return
        bank = x.columns((1 + n_bank) * n, n)
        b.op(elementwise.copy_rows, name="bank", count=n_tok, x=stream, out=bank, n=n)
        b.op(elementwise.copy_rows, name="residual", count=n_tok, x=y, out=stream, n=n)

    def inputs(self, b: Builder, x: Rows, n_bank: int) -> Rows:
        """What the layer reads."""
        return self.normed(b, x, n_bank, self.query, self.norm_weight)

    def normed(self, b: Builder, x: Rows, n_bank: int, query: int, norm: int, out: Rows | None = None) -> Rows:
        """The norm of the mix by `query`."""
        return b.norm(self.mix(b, x, n_bank, query), norm, self.banks.eps, out=out)

    def mix(self, b: Builder, x: Rows, n_bank: int, query: int) -> Rows:
        banks = self.banks
        return banks.mixed(b, x, n_bank, query, b.batch.n_tok) if n_bank else x.columns(0, banks.n_embd)


@dataclass
class BankedInputs(BankedResidual):
    """Attention whose queries, keys and values read mixes of their own, side by side: names of tensors end in _q, _k
    and _v."""

    def load(self, w: Weights) -> None:
        n = self.banks.n_embd

        def own(name: str, part: str) -> str:
            return f"blk.{self.block}.{name.removesuffix('.weight')}_{part}.weight"

        self.parts = [
            (w.vector(own(self.score, part), n) if self.by_number[0] else 0, w.vector(own(self.norm, part), n))
            for part in "qkv"
        ]
        self.layer.load(w)

    def inputs(self, b: Builder, x: Rows, n_bank: int) -> Rows:
        n, out = self.banks.n_embd, b.rows(3 * self.banks.n_embd)
        for i, (query, norm) in enumerate(self.parts):
            self.normed(b, x, n_bank, query, norm, out.columns(i * n, n))
        return out


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
