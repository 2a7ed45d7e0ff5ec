"""Qwen2.5-VL: RoPE by row and column, windows on most layers, gated feed-forward parts. arXiv:2502.13923"""

import numpy as np

from ..layers.feed_forward import GatedFeedForward
from ..program.builder import Rows
from .layers import TURNS, PatchAttention, Stream, TowerBlock
from .places import axial_turns, block_order
from .qwen_vl import FRAMES, FirstFrame, Merger
from .tile import Tile
from .tower import Floats
from .weights import TowerWeights


def windows(rows: int, columns: int, side: int) -> list[np.ndarray]:
    """Raster numbers of the blocks of each window of up to side x side blocks, in raster order."""
    grid = np.arange(rows * columns).reshape(rows, columns)
    tops, lefts = range(0, rows, side), range(0, columns, side)
    return [grid[top : top + side, left : left + side].reshape(-1) for top in tops for left in lefts]


class Qwen25Vl(FirstFrame):
    """The tower of Qwen2.5-VL. Patches come block by block and are read window by window."""

    def load(self, w: TowerWeights) -> None:
        h = self.hparams
        n, self.n_merge = h.n_embd, h.n_merge
        self.patch = w.patches(n, h.patch_size, frames=FRAMES)
        self.blocks, self.attention = [], []
        for i in range(h.n_layer):
            attention = PatchAttention(i, n, h.n_head, h.n_head, self.head_size(4), turned=True)
            self.attention.append(attention)
            self.blocks.append(TowerBlock(i, n, attention, GatedFeedForward(i, n, h.n_ff)))
            self.blocks[-1].load(w)
        self.merger = Merger(w, "v.post_ln", ("mm.0", "mm.2"), (n, n * h.n_merge**2, h.n_out))

    def _windows(self, rows: int, columns: int) -> list[np.ndarray]:
        m, h = self.n_merge, self.hparams
        return windows(rows // m, columns // m, max(1, h.window // (m * h.patch_size)))

    def _order(self, rows: int, columns: int) -> np.ndarray:
        """Numbers of the patches, which come block by block, in the order of reading."""
        each = self.n_merge**2
        blocks = np.concatenate(self._windows(rows, columns))
        order: np.ndarray = (blocks[:, None] * each + np.arange(each)).reshape(-1)
        return order

    def arranged(self, patches: Floats, rows: int, columns: int) -> Floats:
        ordered: Floats = super().arranged(patches, rows, columns)[self._order(rows, columns)]
        return ordered

    def restored(self, features: Floats, rows: int, columns: int) -> Floats:
        out = np.empty_like(features)
        out[np.concatenate(self._windows(rows, columns))] = features
        return out

    def add(self, tile: Tile) -> list[Rows]:
        h, b = self.hparams, tile.b
        raster = block_order(tile.rows, tile.columns, h.n_merge)[self._order(tile.rows, tile.columns)]
        row, column = raster // tile.columns, raster % tile.columns
        tile.named(TURNS, axial_turns(row, column, h.n_embd // h.n_head, h.freq_base))
        lengths = [h.n_merge**2 * len(window) for window in self._windows(tile.rows, tile.columns)]
        apart, pages = tile.windows(lengths), tile.texts(lengths)
        stream = Stream(b, b.matmul(tile.patches, self.patch, "patch_embd"), h.eps)
        for block, attention, is_full in zip(self.blocks, self.attention, h.is_full, strict=True):
            attention.n_text = 1 if is_full else len(lengths)
            with tile.within(tile.batch if is_full else apart):
                block.build(stream, tile.memory if is_full else pages)
        return [self.merger.add(tile, stream.rows(), h.eps)]
