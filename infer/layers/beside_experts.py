"""A dense feed-forward part and experts side by side, each with norms of its own."""

import math
from dataclasses import dataclass

import numpy as np

from ..kernels.rows import elementwise
from ..loading.weights import Weights
from ..memory import HybridMemory
from ..program.builder import Builder, Rows
from .base import MemorySpec
from .feed_forward import GatedFeedForward, MixtureOfExperts


@dataclass
class BesideExperts:
    """norm(dense(norm(x))) + norm(experts(norm(x))) of the residual stream x.

    The router reads x / rms(x) * ffn_gate_inp.scale / sqrt(n_embd).
    """

    layer: int
    n_embd: int
    eps: float
    dense: GatedFeedForward
    experts: MixtureOfExperts

    def load(self, w: Weights) -> None:
        p, n = f"blk.{self.layer}.", self.n_embd
        names = ("ffn_norm", "post_ffw_norm_1", "pre_ffw_norm_2", "post_ffw_norm_2")
        self.before, self.after, self.before_2, self.after_2 = (w.vector(f"{p}{name}.weight", n) for name in names)
        share = np.float32(1 / math.sqrt(n))
        self.router_norm = w.vector(p + "ffn_gate_inp.scale", n, lambda x: x * share)
        self.dense.load(w)
        self.experts.load(w)

    def memory(self) -> tuple[MemorySpec, ...]:
        return ()

    def build(self, b: Builder, x: Rows, memory: HybridMemory) -> Rows:
        dense = self.dense.build(b, b.norm(x, self.before, self.eps), memory)
        dense = b.norm(dense, self.after, self.eps, name="post_norm")
        routed = b.norm(x, self.router_norm, self.eps, name="router_norm")
        logits = b.matmul(routed, self.experts.w_router, "ffn_router")
        mixed = self.experts.mix(b, b.norm(x, self.before_2, self.eps), logits)
        mixed = b.norm(mixed, self.after_2, self.eps, name="post_norm")
        b.op(elementwise.add_rows, count=b.batch.n_tok, x=dense, residual=mixed, n=dense.n)
        return dense
