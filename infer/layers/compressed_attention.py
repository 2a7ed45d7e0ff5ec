"""Attention over the last tokens and over entries that stand for groups of earlier tokens (DeepSeek-V4).

Compressed sparse attention reads the entries that an indexer chooses, heavily compressed attention all of them.

There is one head of keys, which are also the values. RoPE rotates the last values of a head; the same values of
attention's result are rotated back, so a value depends on its distance from the query.
"""

from dataclasses import dataclass, replace

import numpy as np

from ..kernels.attention.rope import rope as rope_op
from ..kernels.rows.gated_norm import gated_norm
from ..loading.weights import Weights
from ..memory import HybridMemory, RecurrentSpec, RowsSpec
from ..program.builder import Builder, Ref, Rows
from .attention import Rope
from .grouped_output import GroupedOutput
from .indexed import EntryChoice, has_lists, lists_of
from .kept_rows import KeptRows
from .listed_attention import ListedAttention, Lists
from .pooling import Pooling, starts_of_groups

NO_GROUP = 1 << 40  # tokens per entry: more than a sequence can have


def turn_last(b: Builder, x: Rows, n_head: int, rope: Rope, w: Weights, memory: HybridMemory, pos: int | Ref) -> None:
    """Apply RoPE to the last values of every head of x, in place. pos: positions of the rows."""
    d_head = x.n // n_head
    first = d_head - rope.n_rot
    b.op(
        rope_op, ctl=b.batch.ctl, pos=pos, x=x.columns(first, x.n - first), n_head=n_head, d_head=d_head,
        n_rot=rope.n_rot, table=rope.table(w, memory.n_ctx), style=rope.style,
    )  # fmt: skip


@dataclass
class Compressor:
    """Makes one entry of n values per `every` tokens from the layer's input.

    An entry is pooled, normalized, and rotated by the position of the first token of its group. name: prefix of the
    tensors' names.
    """

    layer: int
    name: str
    part: str
    n_embd: int
    n: int
    every: int
    overlapping: bool
    rope: Rope
    eps: float

    def __post_init__(self) -> None:
        self.pooling = Pooling(self.layer, f"{self.part}_pool", self.n, self.every, overlapping=self.overlapping)
        self.rows = KeptRows(self.layer, self.part, self.n, every=self.every)

    def load(self, w: Weights) -> None:
        p = f"blk.{self.layer}.{self.name}_"
        self.w_value, self.w_gate = (
            w.matrix(f"{p}{part}.weight", self.pooling.width, self.n_embd) for part in ("kv", "gate")
        )
        self.pooling.load(w, p + "ape.weight")
        self.norm = w.vector(p + "norm.weight", self.n)
        self._weights = w

    def memory(self) -> tuple[RecurrentSpec | RowsSpec, ...]:
        return self.pooling.spec, self.rows.spec

    def store(self, b: Builder, x: Rows, memory: HybridMemory) -> None:
        """Store the entries that the batch completes."""
        u, z = b.matmul(x, self.w_value, f"{self.part}_kv"), b.matmul(x, self.w_gate, f"{self.part}_gate")
        entries = b.norm(self.pooling.entries(b, memory, u, z), self.norm, self.eps, name=f"{self.part}_norm")
        turn_last(b, entries, 1, self.rope, self._weights, memory, starts_of_groups(b, self.every))
        self.rows.store(b, entries, memory)


@dataclass(frozen=True)
class IndexSizes:
    """n_head index queries of d_head values choose n_best entries."""

    n_head: int
    d_head: int
    n_best: int


@dataclass
class CompressedAttention:
    """n_head query heads of d_head values over one head of keys.

    q_rank        width of the latent vectors from which queries are made
    n_group, rank of the output: see GroupedOutput
    window        a token attends to the last `window` tokens, itself included
    eps           of all norms
    every         tokens per entry; 0: no entries
    index         how to choose entries, which then are of overlapping groups; None: all entries
    like          the first layer with the same lists of tokens and entries; a layer with an index has its own
    """

    layer: int
    n_embd: int
    n_head: int
    d_head: int
    q_rank: int
    n_group: int
    rank: int
    window: int
    rope: Rope
    eps: float
    every: int = 0
    index: IndexSizes | None = None
    like: int = 0

    def __post_init__(self) -> None:
        i, n, rope = self.layer, self.n_embd, self.rope
        self.kept = KeptRows(i, "kv", self.d_head)
        overlapping = self.index is not None
        self.compressors: list[Compressor] = []
        if self.every:
            self.compressors.append(
                Compressor(i, "attn_compressor", "entries", n, self.d_head, self.every, overlapping, rope, self.eps)
            )
        if self.index:
            self.compressors.append(
                Compressor(i, "indexer_compressor", "index", n, self.index.d_head, self.every, True, rope, self.eps)
            )
        self.back = replace(rope, freq_scale=-rope.freq_scale)
        self.output = GroupedOutput(i, self.n_head * self.d_head, self.n_group, self.rank, n)

    def load(self, w: Weights) -> None:
        self._check(w)
        p, n_q = f"blk.{self.layer}.", self.n_head * self.d_head
        self.w_qa = w.matrix(p + "attn_q_a.weight", self.q_rank, self.n_embd)
        self.q_norm = w.vector(p + "attn_q_a_norm.weight", self.q_rank)
        self.w_qb = w.matrix(p + "attn_q_b.weight", n_q, self.q_rank)
        self.w_kv = w.matrix(p + "attn_kv.weight", self.d_head, self.n_embd)
        self.kv_norm = w.vector(p + "attn_kv_a_norm.weight", self.d_head)
        self.sinks = w.vector(p + "attn_sinks.weight", self.n_head)
        self.ones = w.keep(np.ones(self.d_head, np.float32))
        if self.index:
            n_index = self.index.n_head
            self.w_index = w.matrix(p + "indexer.attn_q_b.weight", n_index * self.index.d_head, self.q_rank)
            self.w_shares = w.matrix(p + "indexer.proj.weight", n_index, self.n_embd)
        for compressor in self.compressors:
            compressor.load(w)
        self.output.load(w)
        self._weights = w

    def _check(self, w: Weights) -> None:
        n_rot, widths = self.rope.n_rot, [self.d_head, *([self.index.d_head] if self.index else [])]
        if n_rot % 2 or not 0 < n_rot <= min(widths):
            raise w.wrong("rope.dimension_count", n_rot, f"an even number of the {min(widths)} values of a head")

    def memory(self) -> tuple[RecurrentSpec | RowsSpec, ...]:
        return self.kept.spec, *(spec for compressor in self.compressors for spec in compressor.memory())

    def build(self, b: Builder, x: Rows, memory: HybridMemory) -> Rows:
        latent = b.norm(b.matmul(x, self.w_qa, "attn_q_a"), self.q_norm, self.eps, name="attn_q_norm")
        q, pos = b.matmul(latent, self.w_qb, "attn_q_b"), b.batch.rope_pos
        b.op(
            gated_norm, name="attn_norm", count=b.batch.n_tok, y=q, weight=self.ones, stride=0, out=q,
            n_group=self.n_head, n=self.d_head, eps=float(self.eps),
        )  # fmt: skip
        key = b.norm(b.matmul(x, self.w_kv, "attn_kv"), self.kv_norm, self.eps, name="attn_kv_norm")
        turn_last(b, q, self.n_head, self.rope, self._weights, memory, pos)
        turn_last(b, key, 1, self.rope, self._weights, memory, pos)
        self.kept.store(b, key, memory)
        for compressor in self.compressors:
            compressor.store(b, x, memory)
        out = self.attend(b, q, self._lists(b, x, latent, memory), memory)
        turn_last(b, out, self.n_head, self.back, self._weights, memory, pos)
        return self.output.build(b, out)

    def attend(self, b: Builder, q: Rows, lists: Lists, memory: HybridMemory) -> Rows:
        """The heads' results for queries after RoPE."""
        entries = self.compressors[0].rows if self.compressors else None
        return ListedAttention(self.n_head, self.kept, self.kept, entries).attend(b, q, lists, memory, self.sinks)

    def _lists(self, b: Builder, x: Rows, latent: Rows, memory: HybridMemory) -> Lists:
        """The chosen entries and the last tokens, for every token."""
        if self.index is None:
            if has_lists(b, self.like):
                return lists_of(b, self.like)
            return EntryChoice(self.like, self.every or NO_GROUP, 0, as_entries=True, window=self.window).lists(
                b, memory
            )
        size = self.index
        q = b.matmul(latent, self.w_index, "indexer_q")
        turn_last(b, q, size.n_head, self.rope, self._weights, memory, b.batch.rope_pos)
        choice = EntryChoice(
            self.layer, self.every, size.n_best, self.compressors[1].rows, size.n_head,
            (size.d_head * size.n_head) ** -0.5, as_entries=True, window=self.window,
        )  # fmt: skip
        return choice.lists(b, memory, q, b.matmul(x, self.w_shares, "indexer_weights"))
