"""Attention of Inkling: keys and values go through short convolutions; scores have a bias by distance.

Each query mixes its own bias from profiles that all heads of a layer share.
"""

from dataclasses import dataclass

from ..kernels.attention.distance_bias import packed_profiles
from ..loading.weights import Weights
from ..memory import HybridMemory
from ..program.builder import Builder, Rows
from .attention import Attention, Leaning
from .base import MemorySpec
from .convolved import Convolution


@dataclass
class LeaningAttention(Attention):
    """With states r = attn_rel x of a head, and profiles attn_rel_b [n_state, extent]:

        score(query, key) += sum_k r_k profile_k[distance]     where distance < extent

    `query_scale` also multiplies r.

    d_conv  taps of the convolutions
    """

    n_state: int = 0
    extent: int = 0
    d_conv: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.convolutions = [self.convolution(part, n) for part, n in self.projections().items() if part != "q"]

    def convolution(self, part: str, n: int) -> Convolution:
        """The convolution of n keys or values."""
        return Convolution(self.layer, part, n, self.d_conv, self.block)

    def load(self, w: Weights) -> None:
        super().load(w)
        self.w_states = w.matrix(self._prefix + "rel.weight", self.n_head * self.n_state, self.n_in)
        profiles = w.array(self._prefix + "rel_b.weight", self.n_state, self.extent)
        self.profiles = w.keep(packed_profiles(profiles))
        for convolution in self.convolutions:
            convolution.load(w)

    def memory(self) -> tuple[MemorySpec, ...]:  # type: ignore[override]
        return (*super().memory(), *(each.memory() for each in self.convolutions))

    def _project(self, b: Builder, x: Rows, memory: HybridMemory) -> tuple[Rows, Rows, Rows]:
        q, *rows = super()._project(b, x, memory)
        k, v = (
            each.of(b, row, memory, self.input_of(each.part, x))
            for each, row in zip(self.convolutions, rows, strict=True)
        )
        self._leaning = self.lean(b, x)
        if self.query_scale:
            states = self._leaning.states.columns(0, self.n_head * self.n_state)
            self.query_scale.apply(b, states, self._weights, memory.n_ctx)
        return q, k, v

    def lean(self, b: Builder, x: Rows) -> Leaning:
        """The states of x."""
        return Leaning(b.matmul(x, self.w_states, "attn_rel"), self.profiles)

    def leaning(self) -> Leaning:
        return self._leaning
