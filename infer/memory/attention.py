"""Keys and values of the attention layers, for every sequence slot."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ..kernels.kv import K_LANES, KVType, padded_head

Layout = dict[str, tuple[np.dtype, tuple[int, ...]]]  # array name -> dtype, shape

_ALIGN = 64


@dataclass(frozen=True)
class AttentionSpec:
    """What one attention layer keeps per token: `n_kv` heads of `d_head` keys and as many values."""

    layer: int
    n_kv: int
    d_head: int

    def bytes_per_token(self, kind: KVType) -> int:
        return 2 * self.n_kv * kind.row_bytes(self.d_head)


class AttentionMemory:
    """K and V u8 [slot][n_kv][n_ctx / 16][bytes of 16 positions] per layer: see kernels/kv.py for what the bytes are.

    Pages become resident when they are written, so a large `n_ctx` costs nothing until it is used.
    """

    def __init__(self, specs: list[AttentionSpec], n_slots: int, n_ctx: int, kind: KVType) -> None:
        assert n_ctx % K_LANES == 0
        self.specs, self.n_ctx, self.kind = specs, n_ctx, kind
        sizes = {s.layer: (n_slots, s.n_kv, n_ctx // K_LANES, K_LANES * kind.row_bytes(s.d_head)) for s in specs}
        self.k = {layer: _aligned_zeros(shape) for layer, shape in sizes.items()}
        self.v = {layer: _aligned_zeros(shape) for layer, shape in sizes.items()}

    @property
    def bytes_per_token(self) -> int:
        return sum(s.bytes_per_token(self.kind) for s in self.specs)

    def copy(self, source: int, target: int, n: int) -> None:
        """The first `n` positions of one slot to another."""
        blocks = -(-n // K_LANES)
        for s in self.specs:
            for array in (self.k[s.layer], self.v[s.layer]):
                array[target, :, :blocks] = array[source, :, :blocks]

    def layout(self, n: int) -> Layout:
        """What `export` gives: values [n, n_kv, d_head] as f32, f16 or i8, for q8_0 scales f16 [n, n_kv, group] too."""
        return {
            name: (view.dtype, (n, *view.shape[2:]))
            for s in self.specs
            for name, view in self._views(s, 0).items()
        }  # fmt: skip

    def export(self, slot: int, n: int) -> Iterator[tuple[str, np.ndarray]]:
        """(name, array) of every layer's keys and values, as they are kept."""
        blocks = -(-n // K_LANES)
        for s in self.specs:
            for name, view in self._views(s, slot).items():
                yield name, np.ascontiguousarray(view[:blocks]).reshape(-1, *view.shape[2:])[:n]

    def load(self, slot: int, n: int, arrays: dict[str, np.ndarray]) -> None:
        """Inverse of `export`; dtypes and shapes have been checked."""
        whole, rest = n // K_LANES, n % K_LANES
        for s in self.specs:
            for name, view in self._views(s, slot).items():
                array = arrays[name]
                view[:whole] = array[: n - rest].reshape(whole, K_LANES, *view.shape[2:])
                if rest:
                    view[whole, :rest] = array[n - rest :]

    def fill(self, slot: int, n: int, rng: np.random.Generator) -> None:
        """Random keys and values for n positions, every 16 the same: for measuring, where values do not matter."""
        blocks = -(-n // K_LANES)
        for s in self.specs:
            for name, view in self._views(s, slot).items():
                some = rng.standard_normal(view.shape[1:])
                if name.endswith(".scale"):
                    some = np.abs(some) / 64
                elif view.dtype == np.int8:
                    some = np.clip(np.rint(some * 40), -127, 127)
                view[0] = some.astype(view.dtype)
            for array in (self.k[s.layer][slot], self.v[s.layer][slot]):
                array[:, 1:blocks] = array[:, :1]

    def _views(self, s: AttentionSpec, slot: int) -> dict[str, np.ndarray]:
        """Name -> [n_ctx / 16, 16, n_kv, d_head] of values, [..., group] of scales."""
        kind, d_pad = self.kind, padded_head(s.d_head)
        dtype = {"f32": np.float32, "f16": np.float16, "q8_0": np.int8}[kind.name]
        k, v = self.k[s.layer][slot], self.v[s.layer][slot]
        v = v.reshape(*v.shape[:2], K_LANES, -1)
        size = kind.item * d_pad
        name = f"blk.{s.layer}."
        keys = k[..., : K_LANES * size].view(dtype).reshape(*k.shape[:2], d_pad, K_LANES)[:, :, : s.d_head]
        views = {name + "k": keys.transpose(1, 3, 0, 2)}
        if kind.scale:
            scales = k[..., K_LANES * size :].view(np.float16).reshape(*k.shape[:2], -1, K_LANES)
            views[name + "k.scale"] = scales.transpose(1, 3, 0, 2)
        views[name + "v"] = v[..., :size].view(dtype)[..., : s.d_head].transpose(1, 2, 0, 3)
        if kind.scale:
            views[name + "v.scale"] = v[..., size:].view(np.float16).transpose(1, 2, 0, 3)
        return views


def _aligned_zeros(shape: tuple[int, ...]) -> np.ndarray:
    """u8 zeros from the start of a cache line on, not resident until they are written."""
    size = math.prod(shape)
    raw = np.zeros(size + _ALIGN, np.uint8)
    skip = -raw.ctypes.data % _ALIGN
    return raw[skip : skip + size].reshape(shape)
