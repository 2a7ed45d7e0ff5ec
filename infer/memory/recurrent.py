"""States of the recurrent layers: one row per sequence slot, the same size whatever the length of the sequence."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ..kernels.recurrent import arrange_heads, restore_heads, state_shape


@dataclass(frozen=True)
class RecurrentSpec:
    """What one layer keeps, f32: the last d_conv - 1 inputs of a convolution over n_channel channels, and the state of
    a scan, n_head x n_lane x depth (see kernels/recurrent.py). A layer without a scan has no heads."""

    layer: int
    n_channel: int
    d_conv: int
    n_head: int = 0
    n_lane: int = 0
    depth: int = 0

    @property
    def nbytes(self) -> int:
        """Of one sequence."""
        return 4 * (self.n_channel * (self.d_conv - 1) + self.n_head * self.n_lane * self.depth)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Names and shapes of what is exported: conv, oldest input first, and ssm without padding."""
        made: dict[str, tuple[int, ...]] = {f"blk.{self.layer}.conv": (self.d_conv - 1, self.n_channel)}
        if self.n_head:
            made[f"blk.{self.layer}.ssm"] = (self.n_head * self.n_lane, self.depth)
        return made


class RecurrentMemory:
    """conv f32 [slot][d_conv - 1][channel] and ssm f32 [slot][head][lane / 16][depth][16] per layer."""

    def __init__(self, specs: list[RecurrentSpec], n_slots: int) -> None:
        self.specs = specs
        self.conv = {s.layer: np.zeros((n_slots, s.d_conv - 1, s.n_channel), np.float32) for s in specs}
        self.ssm = {
            s.layer: np.zeros((n_slots, *state_shape(s.n_head, s.n_lane, s.depth)), np.float32)
            for s in specs
            if s.n_head
        }

    @property
    def bytes_per_sequence(self) -> int:
        return sum(s.nbytes for s in self.specs)

    def _arrays(self) -> Iterator[np.ndarray]:
        """All arrays, in a fixed order; their first dimension is the slot."""
        yield from self.conv.values()
        yield from self.ssm.values()

    def copy(self, source: int, target: int) -> None:
        for array in self._arrays():
            array[target] = array[source]

    def snapshot(self, slot: int) -> list[np.ndarray]:
        """The state of a slot as it lies in memory, for `put_back`."""
        return [array[slot].copy() for array in self._arrays()]

    def put_back(self, slot: int, saved: list[np.ndarray]) -> None:
        for array, old in zip(self._arrays(), saved, strict=True):
            array[slot] = old

    def fill(self, slot: int, rng: np.random.Generator) -> None:
        """A random state, for measuring."""
        for array in self._arrays():
            array[slot] = rng.standard_normal(array.shape[1:], np.float32)

    def export(self, slot: int) -> Iterator[tuple[str, np.ndarray]]:
        """(name, f32) as `shapes` has them."""
        for s in self.specs:
            yield f"blk.{s.layer}.conv", self.conv[s.layer][slot].copy()
            if s.n_head:
                yield f"blk.{s.layer}.ssm", restore_heads(self.ssm[s.layer][slot], s.n_lane).reshape(-1, s.depth)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: shape for s in self.specs for name, shape in s.shapes.items()}

    def load(self, slot: int, arrays: dict[str, np.ndarray]) -> None:
        """Inverse of `export`; shapes have been checked."""
        for s in self.specs:
            self.conv[s.layer][slot] = arrays[f"blk.{s.layer}.conv"]
            if s.n_head:
                state = arrays[f"blk.{s.layer}.ssm"].reshape(s.n_head, s.n_lane, s.depth)
                self.ssm[s.layer][slot] = arrange_heads(state)
