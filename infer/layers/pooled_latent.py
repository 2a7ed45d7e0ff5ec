"""Latent attention to tokens that an indexer chooses in pools of neighbouring tokens. Of GLM-5.3-Flash.

A pool's key is a gated mix of its tokens' keys. The indexer is DeepSeek-V3.2's.
"""

import math
from dataclasses import dataclass

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
        self.listed = ListedAttention(self.n_head, self.kept, self.kept, scale=1 / math.sqrt(self.width))
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
        return self.listed.attend(b, query, lists, memory)

    def _choose(self, b: Builder, x: Rows, low: Rows, memory: HybridMemory) -> Lists:
        """Store the keys of the pools that the batch completes, and choose the entries that every token attends to."""
        weight, bias = self.index_norm
        k = b.norm(b.matmul(x, self.w_index_k, "index_k"), weight, self.index.eps, name="index_norm", bias=bias)
        gate = b.matmul(x, self.w_pool_gate, "index_gate")
        self.keys.store(b, self.pooling.entries(b, memory, k, gate), memory)
        q, weights = b.matmul(low, self.w_index_q, "index_q"), b.matmul(x, self.w_weights, "index_weights")
        return self.choice.lists(b, memory, q, weights)
