"""Latent attention to tokens that an indexer chooses: one by one (DeepSeek-V3.2, arXiv:2512.02556), or in pools of
neighbouring tokens (GLM-5.3-Flash), whose keys are gated mixes of their tokens' keys.
"""

import math
from dataclasses import dataclass

from ..kernels.attention.rope import NEOX
from ..kernels.attention.rope import rope as rope_op
from ..kernels.rows import elementwise
from ..loading.weights import Weights
from ..memory import HybridMemory
from ..program.builder import Builder, Rows
from .base import MemorySpec
from .indexed import EntryChoice, lists_of
from .kept_rows import KeptRows
from .latent_attention import LatentAttention
from .listed_attention import ListedAttention, Lists
from .pooling import Pooling


@dataclass(frozen=True)
class PoolIndex:
    """n_head index queries of d_head values choose n_best pools of n_pool tokens; eps: of the keys' norm."""

    n_head: int
    d_head: int
    n_pool: int
    n_best: int
    eps: float


@dataclass
class PooledLatentAttention(LatentAttention):
    """Latent attention to chosen tokens; queries must have latent vectors.

    index   sizes of the indexer
    source  the earlier layer whose choice it uses; -1: its own
    """

    index: PoolIndex = PoolIndex(0, 0, 1, 1, 0.0)
    source: int = -1

    def __post_init__(self) -> None:
        super().__post_init__()
        of = self.index
        self.kept = KeptRows(self.layer, "latent", self.n_rot + self.rank, mixer="latent attention of chosen tokens")
        scale = self.scale or 1 / math.sqrt(self.width)
        self.listed = ListedAttention(self.n_head, self.kept, self.kept, scale=scale)
        self.keys = KeptRows(self.layer, "index", of.d_head, every=of.n_pool, mixer=self.kept.mixer)
        self.pooling = Pooling(self.layer, "index", of.d_head, of.n_pool, mixer=self.kept.mixer)
        self.choice = EntryChoice(
            self.layer, of.n_pool, of.n_best, self.keys, of.n_head, scale=1 / math.sqrt(of.d_head * of.n_head)
        )

    def load(self, w: Weights) -> None:
        super().load(w)
        if self.source >= 0:
            return
        p, of = f"blk.{self.layer}.", self.index
        self.w_index_q = w.matrix(p + "indexer.attn_q_b.weight", of.n_head * of.d_head, self.q_rank)
        self.w_index_k = w.matrix(p + "indexer.attn_k.weight", of.d_head, self.n_embd)
        self.index_norm = [w.vector(f"{p}indexer.k_norm.{part}", of.d_head) for part in ("weight", "bias")]
        self.w_weights = w.matrix(p + "indexer.proj.weight", of.n_head, self.n_embd)
        self.load_pooling(w)

    def load_pooling(self, w: Weights) -> None:
        """Load what makes the keys of pools."""
        p, of = f"blk.{self.layer}.", self.index
        self.w_pool_gate = w.matrix(p + "indexer_compressor_gate.weight", of.d_head, self.n_embd)
        self.pooling.load(w, p + "indexer_compressor_ape.weight")

    def memory(self) -> tuple[MemorySpec, ...]:
        if self.source >= 0:
            return (self.kept.spec,)
        return (self.kept.spec, self.keys.spec, self.pooling.spec)

    def store(self, b: Builder, key: Rows, memory: HybridMemory) -> None:
        self.kept.store(b, key, memory)

    def attend(self, b: Builder, x: Rows, low: Rows, query: Rows, memory: HybridMemory) -> Rows:
        lists = lists_of(b, self.source) if self.source >= 0 else self._choose(b, x, low, memory)
        out = self.listed.attend(b, query, lists, memory)
        if not self.n_rot:
            return out
        # the rotated values of a key are no values
        rest, width = b.rows(self.n_head * self.rank), self.n_rot + self.rank
        b.op(
            elementwise.take_parts, name="attn_values", count=b.batch.n_tok, out=rest, n_group=self.n_head, n=self.rank,
            x=out.columns(self.n_rot, out.n - self.n_rot), stride=4 * width,
        )  # fmt: skip
        return rest

    def _choose(self, b: Builder, x: Rows, low: Rows, memory: HybridMemory) -> Lists:
        """Store the keys of the pools that the batch completes, and choose the entries that every token attends to."""
        weight, bias = self.index_norm
        k = b.norm(b.matmul(x, self.w_index_k, "index_k"), weight, self.index.eps, name="index_norm", bias=bias)
        self.keys.store(b, self.entries(b, x, k, memory), memory)
        q, weights = b.matmul(low, self.w_index_q, "index_q"), b.matmul(x, self.w_weights, "index_weights")
        return self.choice.lists(b, memory, self.placed(b, q, self.index.n_head, memory), weights)

    def entries(self, b: Builder, x: Rows, k: Rows, memory: HybridMemory) -> Rows:
        """The keys of pools, from the keys of tokens."""
        return self.pooling.entries(b, memory, k, b.matmul(x, self.w_pool_gate, "index_gate"))

    def placed(self, b: Builder, rows: Rows, n_head: int, memory: HybridMemory) -> Rows:
        """Heads of index queries or keys with their positions: here they have none."""
        return rows


@dataclass
class IndexedLatentAttention(PooledLatentAttention):
    """Latent attention to tokens that are chosen one by one: n_pool is 1.

    index_style  of RoPE on the first n_rot values of index queries and keys
    """

    index_style: int = NEOX

    def load(self, w: Weights) -> None:
        if self.n_rot > self.index.d_head:
            expected = f"at least the {self.n_rot} values that RoPE rotates"
            raise w.wrong("attention.indexer.key_length", self.index.d_head, expected)
        super().load(w)

    def load_pooling(self, w: Weights) -> None:
        """There are no pools."""

    def memory(self) -> tuple[MemorySpec, ...]:
        return (self.kept.spec,) if self.source >= 0 else (self.kept.spec, self.keys.spec)

    def entries(self, b: Builder, x: Rows, k: Rows, memory: HybridMemory) -> Rows:
        return self.placed(b, k, 1, memory)

    def placed(self, b: Builder, rows: Rows, n_head: int, memory: HybridMemory) -> Rows:
        if self.rope and self.n_rot:
            b.op(
                rope_op, name="index_rope", ctl=b.batch.ctl, pos=b.batch.rope_pos, x=rows, n_head=n_head,
                d_head=self.index.d_head, n_rot=self.n_rot, table=self.rope.table(self._weights, memory.n_ctx),
                style=self.index_style,
            )  # fmt: skip
        return rows
