"""Rows that a layer keeps in addition to keys and values, or instead: attention reads them by a list of tokens.

Index keys, latent vectors, and entries that stand for several tokens. They lie in the pages of keys and values, and
have the type of the keys, or q8_0 where keys have 4 or 5 bits.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..kernels.attention.kv import PAGE, CacheTypes, rows_of_page
from .kv_codec import row_views


@dataclass(frozen=True)
class RowsSpec:
    """The memory of one layer for every `every` tokens from the beginning of a sequence: n_head rows of n values.

    part   which of the layer's rows: part of the name of its arrays
    mixer  the kind of the layer, in words

    A row stands for a whole group of `every` tokens and belongs to the last of them. So a text with such rows cannot
    lose tokens from its middle.
    """

    layer: int
    part: str
    n: int
    n_head: int = 1
    every: int = 1
    mixer: str = "attention"

    @property
    def key(self) -> tuple[int, str]:
        """The key of these rows in `AttentionMemory.rows`."""
        return self.layer, self.part

    @property
    def name(self) -> str:
        """Name of the exported array."""
        return f"blk.{self.layer}.{self.part}"

    def page_shape(self, kind: CacheTypes) -> tuple[int, int, int]:
        """Shape of the bytes of a page: (rows, n_head, bytes of a row)."""
        return rows_of_page(self.every), self.n_head, kind.rows.row_bytes(self.n)

    def bytes_per_token(self, kind: CacheTypes) -> int:
        """Bytes of a page divided by its tokens, rounded up."""
        n_rows, n_head, size = self.page_shape(kind)
        return -(-n_rows * n_head * size // PAGE)

    def views(self, stored: npt.NDArray[np.uint8], kind: CacheTypes) -> dict[str, np.ndarray]:
        """Name -> [page, row, n_head, element] of each plane."""
        return {self.name + plane: view for plane, view in row_views(stored, kind.rows, self.n).items()}

    def count(self, start: int, end: int) -> int:
        """Rows that tokens start..end of a sequence complete."""
        return end // self.every - start // self.every

    def places(self, start: int, end: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Positions of these rows: the page, counted from the one that holds token `start`, and the row in it."""
        last = (np.arange(start // self.every, end // self.every) + 1) * self.every - 1
        return last // PAGE - start // PAGE, last % PAGE // self.every
