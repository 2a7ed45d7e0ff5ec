"""Attention of Inkling 2: heads of limited length, sinks and gates of each token, with Inkling's bias by distance."""

from dataclasses import dataclass

import numpy as np

from ..kernels.rows import elementwise
from ..kernels.rows.gated_norm import gated_norm
from ..kernels.rows.length_clip import length_clip
from ..loading.weights import Weights
from ..memory import HybridMemory
from ..program.builder import Builder, Rows
from .attention import Leaning
from .convolved import ChangingConvolution, Convolution
from .leaning_attention import LeaningAttention


@dataclass
class ClippedAttention(LeaningAttention):
    """Queries and states are multiplied by weights of each head's values; then they are clipped, as keys are, to the
    lengths `limit` and `state_limit`. Values have an RMS norm without weights. Each token makes its heads' sinks, and
    gates of each value.

    eps       of the norm of values
    changing  tokens change the taps of convolutions
    apart     queries, keys and values read rows of their own, side by side
    """

    limit: float = 0.0
    state_limit: float = 0.0
    eps: float = 0.0
    changing: bool = False
    apart: bool = False

    def convolution(self, part: str, n: int) -> Convolution:
        if self.changing:
            return ChangingConvolution(self.layer, part, n, self.d_conv, self.block, self.n_kv, self.n_embd)
        return super().convolution(part, n)

    def load(self, w: Weights) -> None:
        super().load(w)
        p, d, n_head = self._prefix, self.d_head, self.n_head
        self.w_sinks = w.matrix(p + "sinks.weight", n_head, self.n_in)
        self.w_gates = w.matrix(p + "gate.weight", n_head * self.d_value, self.n_in)
        self.factors = w.keep(w.array(p + "q_norm.weight", n_head, d))
        self.state_factors = w.keep(w.array(p + "rel_norm.weight", n_head, self.n_state))
        self.ones = w.keep(np.ones(d, np.float32))

    def build(self, b: Builder, x: Rows, memory: HybridMemory) -> Rows:
        n = self.n_in
        self._inputs = {part: x.columns(i * n, n) if self.apart else x for i, part in enumerate("qkv")}
        return super().build(b, self._inputs["q"], memory)

    def input_of(self, part: str, x: Rows) -> Rows:
        return self._inputs[part]

    def lean(self, b: Builder, x: Rows) -> Leaning:
        n = self.n_head * self.n_state
        rows = b.rows(n + self.n_head)
        states, sinks = rows.columns(0, n), rows.columns(n, self.n_head)
        b.matmul(x, self.w_states, "attn_rel", out=states)
        b.matmul(x, self.w_sinks, "attn_sinks", out=sinks)
        self._clip(b, states, self.state_factors, self.n_head, self.state_limit)
        return Leaning(rows, self.profiles, sinks.ref)

    def _clip(self, b: Builder, rows: Rows, weight: int, n_head: int, limit: float) -> None:
        n = rows.n // n_head
        b.op(
            length_clip, name="attn_clip", count=b.batch.n_tok, x=rows, weight=weight,
            stride=0 if weight == self.ones else 4 * n, n_group=n_head, n=n, limit=float(limit),
        )  # fmt: skip

    def _norm_and_turn(self, b: Builder, q: Rows, k: Rows, v: Rows, memory: HybridMemory) -> None:
        self._clip(b, q, self.factors, self.n_head, self.limit)
        self._clip(b, k, self.ones, self.n_kv, self.limit)
        b.op(
            gated_norm, name="attn_norm", count=b.batch.n_tok, y=v, weight=self.ones, stride=0, out=v,
            n_group=self.n_kv, n=self.d_value, eps=float(self.eps),
        )  # fmt: skip
        if self.query_scale:
            self.query_scale.apply(b, q, self._weights, memory.n_ctx)

    def _apply_gate(self, b: Builder, out: Rows, x: Rows, gate: Rows | None) -> None:
        gates = b.matmul(x, self.w_gates, "attn_gate")
        b.op(elementwise.gate_rows, count=b.batch.n_tok, x=out, gate=gates, n=out.n)
