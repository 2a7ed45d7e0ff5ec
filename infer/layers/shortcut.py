"""Experts on a shortcut: they read the input of one layer's feed-forward part, and add to the stream after the next
layer's. LongCat-Flash, arXiv:2509.01322; shortcut-connected experts: arXiv:2404.05019"""

from dataclasses import dataclass

from ..kernels.rows import elementwise
from ..loading.weights import Weights
from ..memory import HybridMemory
from ..program.builder import Builder, Rows
from .base import MemorySpec
from .feed_forward import GatedFeedForward, MixtureOfExperts

NAME = "shortcut"  # the name under which the experts' result is left to the next layer


@dataclass
class Shortcut:
    """A dense feed-forward part. With `experts` it leaves their result, for the same input, to the next layer; without,
    it adds the result of the layer before to its own."""

    layer: int
    dense: GatedFeedForward
    experts: MixtureOfExperts | None = None

    @property
    def by_number(self) -> bool:
        return self.experts is None

    def load(self, w: Weights) -> None:
        self.dense.load(w)
        if self.experts:
            self.experts.load(w)

    def memory(self) -> tuple[MemorySpec, ...]:
        return ()

    def build(self, b: Builder, x: Rows, memory: HybridMemory) -> Rows:
        if self.experts:
            b.named[NAME] = self.experts.build(b, x, memory)
            return self.dense.build(b, x, memory)
        out = self.dense.build(b, x, memory)
        b.op(elementwise.add_rows, count=b.batch.n_tok, x=out, residual=b.named[NAME], n=out.n)
        return out
