"""Rows that a layer keeps beside keys and values, or in place of them: what attention reads by a list of tokens (index
keys, latent vectors, entries that stand for several tokens). Kept in the pages of keys and values, in their type."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..kernels.attention.kv import PAGE, KVType, padded_head, rows_of_page


@dataclass(frozen=True)
class RowsSpec:
    """What one layer keeps for every `every` tokens of a sequence, counted from its beginning: n_head rows of n values.

    part   which of the things that the layer keeps: part of the name of its arrays
    mixer  what the layer is, in words

    A row stands for whole groups of `every` tokens, and belongs to the last of them. So a text that keeps such rows
    cannot lose tokens from its middle.
    """

    layer: int
    part: str
    n: int
    n_head: int = 1
    every: int = 1
    mixer: str = "attention"

    @property
    def key(self) -> tuple[int, str]:
        """Where a memory has them."""
        return self.layer, self.part

    @property
    def name(self) -> str:
        """Of the array that is exported."""
        return f"blk.{self.layer}.{self.part}"

    def page_shape(self, kind: KVType) -> tuple[int, int, int]:
        """Of the bytes of a page."""
        return rows_of_page(self.every), self.n_head, kind.row_bytes(self.n)

    def bytes_per_token(self, kind: KVType) -> int:
        """What a page takes, shared out among its tokens and rounded up."""
        n_rows, n_head, size = self.page_shape(kind)
        return -(-n_rows * n_head * size // PAGE)

    def views(self, stored: npt.NDArray[np.uint8], kind: KVType) -> dict[str, np.ndarray]:
        """Name -> [page, row, n_head, n] of the values, and of q8_0 [page, row, n_head, group] of their scales."""
        size = kind.item * padded_head(self.n)
        dtype = {"f32": np.float32, "f16": np.float16, "q8_0": np.int8}[kind.name]
        views = {self.name: stored[..., :size].view(dtype)[..., : self.n]}
        if kind.scale:
            views[self.name + ".scale"] = stored[..., size:].view(np.float16)
        return views

    def count(self, start: int, end: int) -> int:
        """Rows that tokens start..end of a sequence complete."""
        return end // self.every - start // self.every

    def places(self, start: int, end: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Where those rows lie: the page, from the one that holds token `start`, and the row in it."""
        last = (np.arange(start // self.every, end // self.every) + 1) * self.every - 1
        return last // PAGE - start // PAGE, last % PAGE // self.every
