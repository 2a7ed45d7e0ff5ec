"""Keys and values of the attention layers, for every sequence slot."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ..kernels.attention import K_LANES


@dataclass(frozen=True)
class AttentionSpec:
    """What one attention layer keeps per token: `n_kv` heads of `d_head` keys and as many values, f32."""

    layer: int
    n_kv: int
    d_head: int


class AttentionMemory:
    """K f32 [slot][n_kv][n_ctx / 16][d_head][16] and V f32 [slot][n_kv][n_ctx][d_head] per layer.

    Pages become resident when they are written, so a large `n_ctx` costs nothing until it is used.
    """

    def __init__(self, specs: list[AttentionSpec], n_slots: int, n_ctx: int) -> None:
        assert n_ctx % K_LANES == 0
        self.specs, self.n_ctx = specs, n_ctx
        self.k = {s.layer: np.zeros((n_slots, s.n_kv, n_ctx // K_LANES, s.d_head, K_LANES), np.float32) for s in specs}
        self.v = {s.layer: np.zeros((n_slots, s.n_kv, n_ctx, s.d_head), np.float32) for s in specs}

    @property
    def bytes_per_token(self) -> int:
        return sum(2 * 4 * s.n_kv * s.d_head for s in self.specs)

    def copy(self, source: int, target: int, n: int) -> None:
        """The first `n` positions of one slot to another."""
        blocks = -(-n // K_LANES)
        for s in self.specs:
            self.k[s.layer][target, :, :blocks] = self.k[s.layer][source, :, :blocks]
            self.v[s.layer][target, :, :n] = self.v[s.layer][source, :, :n]

    def export(self, slot: int, n: int) -> Iterator[tuple[str, np.ndarray]]:
        """(name, f32 [n, n_kv, d_head]) of every layer's keys and values."""
        for s in self.specs:
            k = self.k[s.layer][slot].transpose(1, 3, 0, 2).reshape(self.n_ctx, s.n_kv, s.d_head)[:n]
            yield f"blk.{s.layer}.k", np.ascontiguousarray(k)
            yield f"blk.{s.layer}.v", np.ascontiguousarray(self.v[s.layer][slot, :, :n].transpose(1, 0, 2))

    def shapes(self, n: int) -> dict[str, tuple[int, ...]]:
        return {f"blk.{s.layer}.{kv}": (n, s.n_kv, s.d_head) for s in self.specs for kv in "kv"}

    def load(self, slot: int, n: int, arrays: dict[str, np.ndarray]) -> None:
        """Inverse of `export`; shapes have been checked."""
        whole = -(-n // K_LANES) * K_LANES
        for s in self.specs:
            k = np.zeros((whole, s.n_kv, s.d_head), np.float32)
            k[:n] = arrays[f"blk.{s.layer}.k"]
            blocks = k.reshape(-1, K_LANES, s.n_kv, s.d_head).transpose(2, 0, 3, 1)
            self.k[s.layer][slot, :, : whole // K_LANES] = blocks
            self.v[s.layer][slot, :, :n] = arrays[f"blk.{s.layer}.v"].transpose(1, 0, 2)
