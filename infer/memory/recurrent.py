"""States of the recurrent layers, in rows that sequences and checkpoints share.

A row holds the state after some tokens; its size does not depend on their number. A program reads one row and writes
another or the same one (kernels/recurrent/states.py), so a checkpoint is a row that nobody writes any more: it costs
nothing to take and nothing to go back to.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ..kernels.recurrent.states import arrange_heads, restore_heads, state_shape
from .mapped import mapped_zeros
from .pool import IndexPool

Key = int | tuple[int, str]  # a layer, or one of its parts


@dataclass(frozen=True)
class RecurrentSpec:
    """The memory of one layer, in f32: the last inputs of a convolution, and the state of a scan.

    The convolution keeps d_conv - 1 inputs of n_channel channels, the scan n_head x n_lane x depth (see
    kernels/recurrent/states.py). A layer without a scan has no heads.

    mixer   the kind of the layer, in words
    part    name of this state, where a layer keeps several
    turned  keys in it are rotated by their positions
    """

    layer: int
    n_channel: int
    d_conv: int
    n_head: int = 0
    n_lane: int = 0
    depth: int = 0
    mixer: str = "recurrent"
    part: str = ""
    turned: bool = False

    @property
    def key(self) -> Key:
        """The key of its arrays in `RecurrentMemory`."""
        return (self.layer, self.part) if self.part else self.layer

    @property
    def name(self) -> str:
        """Prefix of the names of its arrays."""
        return f"blk.{self.layer}.{self.part}." if self.part else f"blk.{self.layer}."

    @property
    def nbytes(self) -> int:
        """Bytes per sequence, without padding."""
        return 4 * (self.n_channel * (self.d_conv - 1) + self.n_head * self.n_lane * self.depth)

    @property
    def row_nbytes(self) -> int:
        """Bytes of one row, with padded lanes."""
        return 4 * (self.n_channel * (self.d_conv - 1) + math.prod(state_shape(self.n_head, self.n_lane, self.depth)))

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Names and shapes of the exported arrays: conv, oldest input first, and ssm without padding."""
        shapes: dict[str, tuple[int, ...]] = {self.name + "conv": (self.d_conv - 1, self.n_channel)}
        if self.n_head:
            shapes[self.name + "ssm"] = (self.n_head * self.n_lane, self.depth)
        return shapes


class RecurrentMemory:
    """conv f32 [row][d_conv - 1][channel] and ssm f32 [row][head][lane / 16][depth][16] per layer.

    Rows become resident when they are written. Each of the n_slots sequences has two rows (the state before a run and
    the one after it); n_spare: further rows.

    start: the row of the state with which texts begin; -1: zeros. prefixed: it is after a prefix, in a row of its own.
    """

    def __init__(self, specs: list[RecurrentSpec], n_slots: int, n_spare: int = 0, *, prefixed: bool = False) -> None:
        self.specs = specs
        n = 2 * n_slots + n_spare if specs else 0
        self.pool = IndexPool(n, "rows of recurrent states")
        self.start = n if specs and prefixed else -1  # a place that the pool does not hand out
        n = self.n_stored
        self.row = [-1] * n_slots  # per sequence; -1: it has no row
        self.conv: dict[Key, np.ndarray] = {
            s.key: mapped_zeros((n, s.d_conv - 1, s.n_channel), np.float32) for s in specs
        }
        self.ssm: dict[Key, np.ndarray] = {
            s.key: mapped_zeros((n, *state_shape(s.n_head, s.n_lane, s.depth)), np.float32) for s in specs if s.n_head
        }

    @property
    def n_stored(self) -> int:
        """Rows that the arrays have room for."""
        return self.pool.size + (self.start >= 0)

    @property
    def bytes_per_sequence(self) -> int:
        return sum(s.nbytes for s in self.specs)

    def arrays(self) -> Iterator[np.ndarray]:
        """All arrays, in a fixed order; their first dimension is the row."""
        yield from self.conv.values()
        yield from self.ssm.values()

    def state(self, row: int) -> list[np.ndarray]:
        """Views of a row in all arrays."""
        return [array[row] for array in self.arrays()]

    def put(self, slot: int, row: int) -> None:
        """Set the row of a sequence (-1: none), with ownership; its old row is dropped."""
        old, self.row[slot] = self.row[slot], row
        if old >= 0:
            self.pool.drop(old)

    def own(self, slot: int) -> int:
        """The row of a sequence if nobody else has it, otherwise -1."""
        row = self.row[slot]
        return row if row >= 0 and self.pool.owners(row) == 1 else -1

    def fill(self, slot: int, rng: np.random.Generator) -> None:
        """Give a sequence a random state, for benchmarks."""
        if self.specs:
            self.put(slot, self.pool.take())
            self.fill_row(self.row[slot], rng)

    def fill_row(self, row: int, rng: np.random.Generator) -> None:
        """Fill a row with a random state."""
        for array in self.arrays():
            array[row] = rng.standard_normal(array.shape[1:], np.float32)

    def export(self, row: int) -> Iterator[tuple[str, np.ndarray]]:
        """Yield (name, f32 array) of a row, with the shapes of `shapes`."""
        for s in self.specs:
            yield s.name + "conv", self.conv[s.key][row].copy()
            if s.n_head:
                yield s.name + "ssm", restore_heads(self.ssm[s.key][row], s.n_lane).reshape(-1, s.depth)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: shape for s in self.specs for name, shape in s.shapes.items()}

    def load(self, row: int, arrays: dict[str, np.ndarray]) -> None:
        """Inverse of `export`; shapes have been checked."""
        for s in self.specs:
            self.conv[s.key][row] = arrays[s.name + "conv"]
            if s.n_head:
                state = arrays[s.name + "ssm"].reshape(s.n_head, s.n_lane, s.depth)
                self.ssm[s.key][row] = arrange_heads(state)
