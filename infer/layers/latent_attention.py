"""Multi-head latent attention: per token it keeps one small vector for all heads. DeepSeek-V2, arXiv:2405.04434

Keys and values of the heads could be computed from that vector and a rotated key that they share. They are not (the
absorbed form): a head's query is mapped into the space of the latent vectors, which serve as keys and values, and the
result is mapped back. So attention has a single head of keys.
"""

import math
from dataclasses import dataclass

from ..kernels.attention.rope import rope as rope_op
from ..kernels.rows import elementwise, heads
from ..loading.weights import Weights
from ..memory import HybridMemory
from ..program.builder import FEW_COLUMNS, Builder, Columns, Ref, Rows, Weight, round_up
from ..program.record import OpFields
from .attention import Attention, Rope
from .base import Gate, MemorySpec
from .norm import Norm
from .query_scale import QueryScale


@dataclass
class LatentAttention:
    """n_head heads: d_nope values of a query and key without position, n_rot with, d_value of a value.

    rank      of the latent vectors
    eps       of the norms of latent vectors, also of queries
    rope      of the n_rot values; None: they are not rotated
    q_rank    of latent vectors of queries; 0: queries come straight from the input
    gate      from attn_gate, or None
    scale     of the scores; 0: 1 / sqrt(d_nope + n_rot)
    query_scale  factors of queries by position, or None
    gate_factor  the norms of latent vectors have gates, with this factor times sqrt(n_embd / rank); 0: they have none

    A key is kept as [rotated | latent]: the rotated values come first, as in other attention. Nothing else is kept.
    """

    layer: int
    n_embd: int
    n_head: int
    d_nope: int
    n_rot: int
    d_value: int
    rank: int
    eps: float
    rope: Rope | None = None
    q_rank: int = 0
    gate: Gate | None = None
    scale: float = 0.0
    query_scale: QueryScale | None = None
    gate_factor: float = 0.0

    def __post_init__(self) -> None:
        self.width = self.d_nope + self.n_rot  # values of a head's query
        self.latent = Attention(
            self.layer, self.n_embd, self.n_head, 1, self.n_rot + self.rank, self.rope, d_value=self.rank,
            scale=self.scale or 1 / math.sqrt(self.width), latent=True,
        )  # fmt: skip

    def load(self, w: Weights) -> None:
        if self.n_rot % 2 and self.rope:
            raise w.wrong("rope.dimension_count", self.n_rot, "an even number")
        p, n_q = f"blk.{self.layer}.", self.n_head * self.width
        if self.q_rank:
            self.w_qa = w.matrix(p + "attn_q_a.weight", self.q_rank, self.n_embd)
            self.q_norm = self._norm(w, p + "attn_q_a_norm.weight", self.q_rank)
            self.w_q = w.matrix(p + "attn_q_b.weight", n_q, self.q_rank)
        else:
            self.w_q = w.matrix(p + "attn_q.weight", n_q, self.n_embd)
        self.w_kv = w.matrix(p + "attn_kv_a_mqa.weight", self.rank + self.n_rot, self.n_embd)
        self.kv_norm = self._norm(w, p + "attn_kv_a_norm.weight", self.rank)
        if p + "attn_kv_b.weight" in w:
            self.w_kb, self.w_vb = self._split(w, p)
        else:
            self.w_kb = w.experts(p + "attn_k_b.weight", self.n_head, self.rank, self.d_nope)
            self.w_vb = w.experts(p + "attn_v_b.weight", self.n_head, self.d_value, self.rank)
        if self.gate:
            n_gate = self.n_head * self.d_value if self.gate is Gate.VALUES else self.n_head
            self.w_gate = w.matrix(p + "attn_gate.weight", n_gate, self.n_embd)
        self.w_out = w.matrix(p + "attn_output.weight", self.n_embd, self.n_head * self.d_value)
        self._weights = w

    def _norm(self, w: Weights, name: str, rank: int) -> Norm:
        """The norm of latent vectors of `rank` values."""
        return Norm.load(w, name, rank, self.gate_factor * math.sqrt(self.n_embd / rank))

    def _split(self, w: Weights, p: str) -> tuple[Weight, Weight]:
        """The matrices of keys and of values, from one that has rows of both, head by head. The
        matrices of keys are transposed; quantized ones are decoded for that."""
        rows = self.n_head * (self.d_nope + self.d_value)
        values, kind = w.plain(p + "attn_kv_b.weight", rows, self.rank)
        of_heads = values.reshape(self.n_head, -1, self.rank)
        k, v = of_heads[:, : self.d_nope].swapaxes(1, 2), of_heads[:, self.d_nope :]
        return w.stack(p + "attn_k_b.weight", k, kind), w.stack(p + "attn_v_b.weight", v, kind)

    def memory(self) -> tuple[MemorySpec, ...]:
        return self.latent.memory()

    def build(self, b: Builder, x: Rows, memory: HybridMemory) -> Rows:
        self.store(b, self._key(b, x, memory), memory)
        low = self._low(b, x)
        out = self.attend(b, x, low, self._query(b, low, memory), memory)
        gate = b.matmul(x, self.w_gate, "attn_gate") if self.gate else None
        values = b.rows(self.n_head * self.d_value)
        of_heads = None if self.gate is Gate.VALUES else gate
        self._by_heads(b, out, self.rank, self.w_vb, "attn_v_b", values, self.d_value, of_heads)
        if gate is not None and self.gate is Gate.VALUES:
            b.op(elementwise.gate_rows, name="attn_gated", count=b.batch.n_tok, x=values, gate=gate, n=values.n)
        return b.matmul(values, self.w_out, "attn_out")

    def store(self, b: Builder, key: Rows, memory: HybridMemory) -> None:
        """Store [rotated | latent] of every token."""
        self.latent.store(b, key, key, memory)

    def attend(self, b: Builder, x: Rows, low: Rows, query: Rows, memory: HybridMemory) -> Rows:
        """The heads' results, in the latent space. x: the layer's input; low: see `_low`."""
        return self.latent.attend(b, query, memory)

    def _low(self, b: Builder, x: Rows) -> Rows:
        """The rows from which queries are made: their latent vectors, or the input itself."""
        if not self.q_rank:
            return x
        return self.q_norm.build(b, b.matmul(x, self.w_qa, "attn_q_a"), self.eps, name="attn_q_norm")

    def _key(self, b: Builder, x: Rows, memory: HybridMemory) -> Rows:
        """[rotated | latent] of every token."""
        both, key = b.matmul(x, self.w_kv, "attn_kv_a"), b.rows(self.n_rot + self.rank)
        latent = key.columns(self.n_rot, self.rank)
        self.kv_norm.build(b, both.columns(0, self.rank), self.eps, name="attn_kv_norm", out=latent)
        if self.n_rot:
            self._move(b, both.columns(self.rank, self.n_rot), 0, key, 0, 1)
            self._turn(b, key, 1, self.n_rot + self.rank, memory)
        return key

    def _query(self, b: Builder, low: Rows, memory: HybridMemory) -> Rows:
        """[rotated | mapped into the latent space] of every token and head."""
        q, size = b.matmul(low, self.w_q, "attn_q"), self.n_rot + self.rank
        query = b.rows(self.n_head * size)
        self._by_heads(b, q, self.width, self.w_kb, "attn_k_b", query.columns(self.n_rot, query.n - self.n_rot), size)
        if self.n_rot:
            rotated = q.columns(self.d_nope, q.n - self.d_nope)
            self._move(b, rotated, 4 * self.width, query, 4 * size, self.n_head)
            self._turn(b, query, self.n_head, size, memory)
        if self.query_scale:
            self.query_scale.apply(b, query, self._weights, memory.n_ctx)
        return query

    def _move(self, b: Builder, x: Rows, stride: int, out: Rows, out_stride: int, n_group: int) -> None:
        b.op(
            elementwise.take_parts, name="attn_rotated", count=b.batch.n_tok, x=x, out=out, n_group=n_group,
            n=self.n_rot, stride=stride, out_stride=out_stride,
        )  # fmt: skip

    def _turn(self, b: Builder, x: Rows, n_head: int, d_head: int, memory: HybridMemory) -> None:
        if self.rope:
            b.op(
                rope_op, ctl=b.batch.ctl, pos=b.batch.rope_pos, x=x, n_head=n_head, d_head=d_head, n_rot=self.n_rot,
                table=self.rope.table(self._weights, memory.n_ctx), style=self.rope.style,
            )  # fmt: skip

    def _by_heads(
        self, b: Builder, x: Rows, step: int, w: Weight, name: str, out: Rows, out_step: int, gate: Rows | None = None
    ) -> None:
        """Multiply each head's values, `step` apart in x, with the head's own matrix; results are `out_step` apart."""
        few = b.capacity <= FEW_COLUMNS
        width = b.products.width(few)
        n_columns = self.n_head * round_up(b.capacity, width)
        n_in = self.rank if name == "attn_v_b" else self.d_nope
        groups = Ref(b.buffer(8 + 24 * self.n_head))
        b.op(heads.head_groups, count=b.batch.n_tok, n_head=self.n_head, width=width, groups=groups)
        apart = b.rows(n_in, n_columns)
        b.op(
            heads.split_heads, name="attn_split", count=b.batch.n_tok, x=x, out=apart, n_head=self.n_head, n=n_in,
            stride=4 * step, width=width,
        )  # fmt: skip
        y = b.matmul(apart, w, name, Columns(groups, n_columns, few=few))
        more: OpFields = {} if gate is None else {"gate": gate}
        b.op(
            heads.join_heads, name="attn_join", count=b.batch.n_tok, x=y, out=out, n_head=self.n_head, n=w.rows,
            stride=4 * out_step, width=width, **more,
        )  # fmt: skip
