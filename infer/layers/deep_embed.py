"""DeepEmbed of RWKV-7a and RWKV-7b: on every layer, tables with a row for every token of the vocabulary. Of RWKV-LM.

A row is the table's, plus a matrix times the token's normed embedding.
"""

from dataclasses import dataclass

from hybrid.quant.ggml.errors import FormatError

from ..kernels.recurrent.rwkv import tanh_rows
from ..kernels.rows import elementwise
from ..kernels.rows.token_matrices import multiply_rows, token_products
from ..loading.weights import Weights
from ..memory import HybridMemory, RecurrentSpec
from ..program.builder import Builder, Rows
from .attention import Attention
from .base import Layer, MemorySpec
from .rwkv import ChannelMix, shifted

EMBEDDING = "normed embedding"  # the name under which it is left to all layers
SHIFT = "dea"  # the state: the last query, key and value
# Scores of the attention are CAP * tanh(q . k / DIVISOR), whatever the width of keys.
CAP, DIVISOR = 64.0, 1024.0


@dataclass
class KeptEmbedding:
    """Leaves the normed embedding to all layers; then the first layer."""

    first: Layer
    n_embd: int
    eps: float

    @property
    def after_inputs(self) -> Layer:
        return self.first

    def load(self, w: Weights) -> None:
        self.embedding = w.embedding("token_embd.weight", self.n_embd)
        self.norm, self.bias = (w.vector(f"token_embd_norm.{part}", self.n_embd) for part in ("weight", "bias"))
        self.first.load(w)

    def memory(self) -> tuple[MemorySpec, ...]:
        return self.first.memory()

    def build(self, b: Builder, x: Rows, memory: HybridMemory) -> Rows:
        rows = b.rows(self.n_embd)
        b.embed(self.embedding, rows)
        b.named[EMBEDDING] = b.norm(rows, self.norm, self.eps, bias=self.bias, name="token_embd_norm")
        return self.first.build(b, x, memory)


@dataclass
class TokenTable:
    """The n values for each token of the table NAME.weight."""

    name: str
    n: int
    n_embd: int

    def load(self, w: Weights) -> None:
        self.table = w.embedding(self.name + ".weight", self.n)
        self.matrix = w.matrix(self.name + "_x.weight", self.n, self.n_embd)
        n_vocab = w.gguf.info("token_embd.weight").shape[0]
        if self.table.rows < n_vocab:
            raise FormatError(
                f"{w.gguf.path.name}: {self.name}.weight has {self.table.rows} rows, expected one for each of the "
                f"{n_vocab} tokens. Convert the model again."
            )

    def rows(self, b: Builder) -> Rows:
        """The values for the tokens of a batch."""
        own, made = b.rows(self.n), b.matmul(b.named[EMBEDDING], self.matrix, "token_table")
        b.embed(self.table, own)
        b.op(elementwise.add_rows, count=b.batch.n_tok, x=made, residual=own, n=self.n)
        return made


@dataclass
class DeepChannelMix(ChannelMix):
    """Hidden values are multiplied by s0 + S2 (M S1 x); M: a token's matrix of n_deep x n_deep, from its table."""

    n_deep: int

    def load(self, w: Weights) -> None:
        super().load(w)
        p = f"blk.{self.layer}.deep_embd"
        self.table = TokenTable(p, self.n_deep**2, self.n_embd)
        self.table.load(w)
        self.down = w.matrix(p + "_down.weight", self.n_deep, self.n_embd)
        self.up = w.matrix(p + "_up.weight", self.n_ff, self.n_deep)
        self.bias = w.vector(p + "_up.bias", self.n_ff)

    def change_hidden(self, b: Builder, x: Rows, k: Rows) -> None:
        low, n_tok = b.rows(self.n_deep), b.batch.n_tok
        b.op(
            token_products, count=n_tok, x=b.matmul(x, self.down, "deep_embd_down"), matrix=self.table.rows(b), out=low,
            n_in=self.n_deep, n=self.n_deep,
        )  # fmt: skip
        b.op(multiply_rows, count=n_tok, x=k, y=b.matmul(low, self.up, "deep_embd_up"), bias=self.bias, n=k.n)


@dataclass
class DeepEmbedAttention(Attention):
    """Attention without positions on the residual stream, whose keys and values a token's tables multiply ("DEA").

    One key of d_head values for all n_head heads, which share out the n_embd values. Queries, keys and values are mixed
    with the token's before, and normed. rank: of the maps to keys and values.
    """

    map_rank: int = 0
    eps: float = 1e-5

    def __post_init__(self) -> None:
        self.scale, self.soft_cap = CAP / DIVISOR, CAP
        super().__post_init__()

    def load(self, w: Weights) -> None:
        p, n, d, rank = f"blk.{self.layer}.dea_", self.n_embd, self.d_head, self.map_rank
        if n % d:
            raise w.wrong("deep_embed.attention.key_length", d, f"a divisor of embedding_length = {n}")
        self._weights = w
        self.query = w.matrix(p + "q.weight", d, n)
        sizes = {"q": d, "k": d, "v": n}
        self.maps, self.tables = {}, {}
        for part in "kv":
            self.maps[part] = (
                w.matrix(f"{p}{part}_down.weight", rank, n), w.matrix(f"{p}{part}_up.weight", sizes[part], rank),
            )  # fmt: skip
            self.tables[part] = TokenTable(f"{p}{part}_embd", sizes[part], n)
            self.tables[part].load(w)
        self.mu = {part: w.vector(f"{p}lerp_{part}.weight", size) for part, size in sizes.items()}
        self.norms = {
            part: [w.vector(f"{p}{part}_norm.{kind}", size) for kind in ("weight", "bias")]
            for part, size in sizes.items()
        }

    def memory(self) -> tuple[MemorySpec, ...]:  # type: ignore[override]
        width = 2 * self.d_head + self.n_embd
        return (*super().memory(), RecurrentSpec(self.layer, width, 2, mixer="DeepEmbed attention", part=SHIFT))

    def build(self, b: Builder, x: Rows, memory: HybridMemory) -> Rows:
        states, first = memory.recurrent.conv[self.layer, SHIFT], 0
        made = {"q": b.matmul(x, self.query, "dea_q"), "k": self._mapped(b, x, "k"), "v": self._mapped(b, x, "v")}
        for part, rows in made.items():
            (mixed,) = shifted(b, rows, self.mu[part], 1, states, first)
            weight, bias = self.norms[part]
            made[part], first = b.norm(mixed, weight, self.eps, bias=bias, name="dea_norm"), first + rows.n
        self.store(b, self._repeated(b, made["k"]), made["v"], memory)
        return self.attend(b, self._repeated(b, made["q"]), memory)

    def _mapped(self, b: Builder, x: Rows, part: str) -> Rows:
        """Keys, or values, before they are mixed with the token's before."""
        down, up = self.maps[part]
        rows = b.matmul(b.matmul(x, down, f"dea_{part}_down"), up, f"dea_{part}_up")
        if part == "v":
            b.op(tanh_rows, count=b.batch.n_tok, x=rows, n=rows.n)
        b.op(multiply_rows, count=b.batch.n_tok, x=rows, y=self.tables[part].rows(b), n=rows.n)
        return rows

    def _repeated(self, b: Builder, x: Rows) -> Rows:
        """The row for every head."""
        out, n_head = b.rows(self.n_head * x.n), self.n_head
        b.op(elementwise.take_parts, count=b.batch.n_tok, x=x, out=out, n_group=n_head, n=x.n, stride=0)
        return out


@dataclass
class NormedBeside:
    """first(norm(x)) + second(x) of the residual stream x; norm: prefix of the tensors of a layer norm."""

    first: Layer
    second: Layer
    norm: str
    n_embd: int
    eps: float

    def load(self, w: Weights) -> None:
        self.weight, self.bias = (w.vector(f"{self.norm}.{part}", self.n_embd) for part in ("weight", "bias"))
        self.first.load(w)
        self.second.load(w)

    def memory(self) -> tuple[MemorySpec, ...]:
        return (*self.first.memory(), *self.second.memory())

    def build(self, b: Builder, x: Rows, memory: HybridMemory) -> Rows:
        total = self.first.build(b, b.norm(x, self.weight, self.eps, bias=self.bias), memory)
        more = self.second.build(b, x, memory)
        b.op(elementwise.add_rows, count=b.batch.n_tok, x=total, residual=more, n=total.n)
        return total
