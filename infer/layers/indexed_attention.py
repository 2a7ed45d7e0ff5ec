"""Attention to groups of tokens that an indexer chooses by scoring the groups' keys. Of Qwen3.8-Flash-Next.

A token also attends to its incomplete group.
"""

import math
from dataclasses import dataclass

from ..kernels.attention.rope import rope as rope_op
from ..kernels.rows.gated_norm import gated_norm
from ..loading.weights import Weights
from ..memory import HybridMemory
from ..program.builder import Builder, Ref, Rows
from .attention import Attention
from .base import MemorySpec
from .indexed import EntryChoice
from .kept_rows import KeptRows
from .listed_attention import ListedAttention, Lists
from .pooling import Pooling, starts_of_groups

MIXER = "indexed attention"
MOST_TOKENS = 1024  # limit on tokens per group, and so on the rows that the layer keeps per sequence


@dataclass
class IndexedAttention(Attention):
    """Attention to the best groups of tokens.

    every        tokens per group; its key is the mean of theirs, normalized and rotated to the position of the first
    n_best       most groups that a token attends to
    n_index_head index queries of d_index values, each normalized; a score is the sum of their positive products with
    the
                 key
    index_eps    of the norms of index queries and keys
    """

    every: int = 1
    n_best: int = 1
    n_index_head: int = 1
    d_index: int = 1
    index_eps: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.kept = {
            part: KeptRows(self.layer, part, n, self.n_kv, mixer=MIXER)
            for part, n in (("k", self.d_head), ("v", self.d_value))
        }
        self.index_keys = KeptRows(self.layer, "index", self.d_index, every=self.every, mixer=MIXER)
        self.mean = Pooling(self.layer, "index", self.d_index, self.every, gated=False, mixer=MIXER)
        self.choice = EntryChoice(
            self.layer, self.every, self.n_best, self.index_keys, self.n_index_head, 1 / math.sqrt(self.d_index)
        )

    def load(self, w: Weights) -> None:
        if self.every > MOST_TOKENS:
            raise w.wrong("attention.compress_ratios", self.every, f"at most {MOST_TOKENS}")
        super().load(w)
        if self.rope and self.rope.n_rot > self.d_index:
            expected = f"at least the {self.rope.n_rot} values that RoPE rotates"
            raise w.wrong("attention.indexer.key_length", self.d_index, expected)
        p, d = f"blk.{self.layer}.indexer.", self.d_index
        self.w_index_q = w.matrix(p + "q_proj.weight", self.n_index_head * d, self.n_in)
        self.w_index_k = w.matrix(p + "k_proj.weight", d, self.n_in)
        self.index_norms = {part: w.vector(f"{p}{part}_norm.weight", d) for part in "qk"}
        self.mean.load(w)

    def memory(self) -> tuple[MemorySpec, ...]:  # type: ignore[override]
        return (*(rows.spec for rows in (*self.kept.values(), self.index_keys)), self.mean.spec)

    def build(self, b: Builder, x: Rows, memory: HybridMemory) -> Rows:
        self._lists = self._chosen(b, x, memory)
        return super().build(b, x, memory)

    def store(self, b: Builder, k: Rows, v: Rows, memory: HybridMemory) -> None:
        for part, rows in (("k", k), ("v", v)):
            self.kept[part].store(b, rows, memory)

    def attend(self, b: Builder, q: Rows, memory: HybridMemory) -> Rows:
        listed = ListedAttention(self.n_head, self.kept["k"], self.kept["v"], scale=self.scale)
        return listed.attend(b, q, self._lists, memory)

    def _chosen(self, b: Builder, x: Rows, memory: HybridMemory) -> Lists:
        """Store the keys of the groups that the batch completes; return the lists that its tokens attend to."""
        key = self.mean.entries(b, memory, b.matmul(x, self.w_index_k, "index_k"))
        self._finish(b, key, "k", 1, starts_of_groups(b, self.every), memory)
        self.index_keys.store(b, key, memory)
        q = b.matmul(x, self.w_index_q, "index_q")
        self._finish(b, q, "q", self.n_index_head, b.batch.rope_pos, memory)
        return self.choice.lists(b, memory, q)

    def _finish(self, b: Builder, rows: Rows, part: str, n_head: int, pos: "int | Ref", memory: HybridMemory) -> None:
        """Norm and RoPE for heads of index queries or keys, in place."""
        b.op(
            gated_norm, name="index_norm", count=b.batch.n_tok, y=rows, weight=self.index_norms[part], stride=0,
            out=rows, n_group=n_head, n=self.d_index, eps=float(self.index_eps),
        )  # fmt: skip
        if self.rope:
            b.op(
                rope_op, name="index_rope", ctl=b.batch.ctl, pos=pos, x=rows, n_head=n_head, d_head=self.d_index,
                n_rot=self.rope.n_rot, table=self.rope.table(self._weights, memory.n_ctx), style=self.rope.style,
            )  # fmt: skip
