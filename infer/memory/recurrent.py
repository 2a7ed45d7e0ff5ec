"""States of the recurrent layers: one row per sequence slot, the same size whatever the length of the sequence."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ..kernels.ssm import arrange_channels, n_groups, restore_channels


@dataclass(frozen=True)
class RecurrentSpec:
    """What one Mamba layer keeps: the last d_conv - 1 inputs of the convolution and the scan's state, f32."""

    layer: int
    n_channel: int
    d_conv: int
    d_state: int


class RecurrentMemory:
    """conv f32 [slot][d_conv - 1][channel] and ssm f32 [slot][channel / 16][d_state][16] per layer."""

    def __init__(self, specs: list[RecurrentSpec], n_slots: int) -> None:
        self.specs = specs
        self.conv = {s.layer: np.zeros((n_slots, s.d_conv - 1, s.n_channel), np.float32) for s in specs}
        self.ssm = {s.layer: np.zeros((n_slots, n_groups(s.n_channel), s.d_state, 16), np.float32) for s in specs}

    @property
    def bytes_per_sequence(self) -> int:
        return sum(4 * s.n_channel * (s.d_conv - 1 + s.d_state) for s in self.specs)

    def copy(self, source: int, target: int) -> None:
        for s in self.specs:
            self.conv[s.layer][target] = self.conv[s.layer][source]
            self.ssm[s.layer][target] = self.ssm[s.layer][source]

    def snapshot(self, slot: int) -> list[np.ndarray]:
        """The state of a slot as it lies in memory, for `put_back`."""
        return [a[s.layer][slot].copy() for s in self.specs for a in (self.conv, self.ssm)]

    def put_back(self, slot: int, saved: list[np.ndarray]) -> None:
        for i, s in enumerate(self.specs):
            self.conv[s.layer][slot] = saved[2 * i]
            self.ssm[s.layer][slot] = saved[2 * i + 1]

    def export(self, slot: int) -> Iterator[tuple[str, np.ndarray]]:
        """(name, f32): conv [d_conv - 1, channel], oldest first, and ssm [channel, d_state] of every layer."""
        for s in self.specs:
            yield f"blk.{s.layer}.conv", self.conv[s.layer][slot].copy()
            yield f"blk.{s.layer}.ssm", restore_channels(self.ssm[s.layer][slot], s.n_channel)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        both: dict[str, tuple[int, ...]] = {}
        for s in self.specs:
            both[f"blk.{s.layer}.conv"] = (s.d_conv - 1, s.n_channel)
            both[f"blk.{s.layer}.ssm"] = (s.n_channel, s.d_state)
        return both

    def load(self, slot: int, arrays: dict[str, np.ndarray]) -> None:
        """Inverse of `export`; shapes have been checked."""
        for s in self.specs:
            self.conv[s.layer][slot] = arrays[f"blk.{s.layer}.conv"]
            self.ssm[s.layer][slot] = arrange_channels(arrays[f"blk.{s.layer}.ssm"])
