"""Entries that stand for groups of tokens, pooled from a projection of each token."""

from dataclasses import dataclass

import numpy as np

from ..kernels.recurrent.pools import group_starts, pool_rows, pool_scratch_bytes, pool_slots
from ..loading.weights import Weights
from ..memory import HybridMemory, RecurrentSpec
from ..program.builder import Builder, Ref, Rows


def starts_of_groups(b: Builder, every: int) -> Ref:
    """Position of the first token of each token's group, i64 [tok]: RoPE rotates the entry by it."""
    name = f"group_starts.{every}"
    if name not in b.common:
        starts = b.common[name] = Rows(b.buffer(8 * b.capacity), 1, 8)
        b.op(group_starts, ctl=b.batch.ctl, pos=b.batch.pos, out=starts.ref, every=every)
    return b.common[name].ref


@dataclass
class Pooling:
    """One entry of n channels per `every` tokens, and the state for incomplete groups: kernels/recurrent/pools.py.

    part         name of this state of the layer
    gated        a softmax over the tokens weighs them, channel by channel; otherwise an entry is their mean
    overlapping  tokens have two halves of n channels, and an entry covers this group and the one before
    """

    layer: int
    part: str
    n: int
    every: int
    gated: bool = True
    overlapping: bool = False
    mixer: str = "attention"

    @property
    def width(self) -> int:
        """Width of a token's values, and of its gates."""
        return 2 * self.n if self.overlapping else self.n

    @property
    def spec(self) -> RecurrentSpec:
        """The needs of the state, for the memory."""
        n_slot = pool_slots(self.every, overlapping=self.overlapping)
        return RecurrentSpec(self.layer, (1 + self.gated) * self.width, n_slot + 1, mixer=self.mixer, part=self.part)

    def load(self, w: Weights, ape: str = "") -> None:
        """ape: the tensor [every, width] that is added to the gates by a token's index in its group; "": not used."""
        self.ape = self.ape_stride = 0
        if ape:
            self.ape, self.ape_stride = w.keep(w.array(ape, self.every, self.width)), 4 * self.width
        elif self.gated:
            self.ape = w.keep(np.zeros(self.width, np.float32))

    def entries(self, b: Builder, memory: HybridMemory, u: Rows, z: Rows | None = None) -> Rows:
        """Entries [n] from values u and gates z [width] of all tokens.

        Only rows of tokens that complete a group are defined.
        """
        assert (z is not None) == self.gated
        batch, out, states = b.batch, b.rows(self.n), memory.recurrent.conv[self.spec.key]
        b.op(
            pool_rows, ctl=batch.ctl, seg=batch.seg, pos=batch.pos, u=u, z=z, ape=self.ape, ldape=self.ape_stride,
            state=states.ctypes.data, stride=states.strides[0], out=out, n=self.n, every=self.every,
            overlapping=int(self.overlapping), scratch=Ref(b.scratch),
            scratch_bytes=b.need_scratch(pool_scratch_bytes()),
        )  # fmt: skip
        return out
