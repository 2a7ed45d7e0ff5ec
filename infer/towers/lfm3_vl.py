"""LFM3-VL: gated convolutions over the grid of patches, on some layers attention with RoPE by row and column. Of Liquid
AI."""

from dataclasses import dataclass

import numpy as np

from ..kernels.rows.gelu import gelu
from ..kernels.rows.grid_conv import grid_conv, zero_row
from ..layers.base import Layer, MemorySpec
from ..layers.feed_forward import GatedFeedForward
from ..layers.head_norm import HeadNorm
from ..loading.weights import Weights
from ..memory import HybridMemory
from ..program.builder import Builder, Rows
from .layers import TURNS, PatchAttention, Stream, TowerBlock
from .places import axial_turns, block_order
from .qwen_vl import FRAMES, FirstFrame
from .tile import Tile
from .weights import TowerWeights

NEAR = "near"  # the name of the rows of patches under each tap


@dataclass
class GridConv:
    """out_proj(c * conv(b * x)) with b, c, x = in_proj(input): a depthwise convolution of `side` x `side` taps."""

    layer: int
    n_embd: int
    side: int

    def load(self, w: Weights) -> None:
        n, name = self.n_embd, f"blk.{self.layer}.shortconv."
        self.w_in, self.w_out = w.matrix(f"{name}in_proj.weight", 3 * n, n), w.matrix(f"{name}out_proj.weight", n, n)
        taps = w.array(f"{name}conv.weight", n, self.side, self.side)
        self.taps = w.keep(np.ascontiguousarray(taps.reshape(n, -1).T))

    def memory(self) -> tuple[MemorySpec, ...]:
        return ()

    def build(self, b: Builder, x: Rows, memory: HybridMemory) -> Rows:
        n = self.n_embd
        wide = b.rows(3 * n, b.capacity + 1)
        b.matmul(x, self.w_in, "shortconv_in", out=wide)
        b.op(zero_row, count=b.batch.n_tok, x=wide, n=wide.n)
        out = b.rows(n)
        b.op(
            grid_conv, count=b.batch.n_tok, x=wide, near=b.named[NEAR].ref, weight=self.taps, out=out, n=n,
            n_tap=self.side**2,
        )  # fmt: skip
        return b.matmul(out, self.w_out, "shortconv_out")


def near_patches(rows: int, columns: int, order: np.ndarray, side: int) -> np.ndarray:
    """The number of the patch under each tap, i64 [n, side * side]; n outside of the grid. order: raster numbers of the
    patches in their order."""
    n = rows * columns
    number = np.full((rows + side - 1, columns + side - 1), n, np.int64)
    inner = number[side // 2 : side // 2 + rows, side // 2 : side // 2 + columns]
    inner[order // columns, order % columns] = np.arange(n)
    row, column = order // columns, order % columns
    return np.stack([number[row + i, column + j] for i in range(side) for j in range(side)], axis=1)


class Lfm3Vl(FirstFrame):
    """The tower of LFM3-VL."""

    EPS = 1e-6  # of the projector's norm

    def load(self, w: TowerWeights) -> None:
        h = self.hparams
        n, self.n_merge = h.n_embd, h.n_merge
        self.patch = w.patches(n, h.patch_size, frames=FRAMES)
        self.patch_norm = w.norm("v.norm_embd", n)
        self.blocks = []
        for i, n_kv in enumerate(h.n_head_kv):
            mixer: Layer = GridConv(i, n, h.n_taps)
            if n_kv:
                norm = HeadNorm(h.eps)
                mixer = PatchAttention(i, n, h.n_head, n_kv, self.head_size(4), norm=norm, turned=True)
            self.blocks.append(TowerBlock(i, n, mixer, GatedFeedForward(i, n, h.n_ff)))
            self.blocks[-1].load(w)
        self.norm = w.norm("mm.input_norm", n)
        width = w.gguf.info("mm.1.weight").shape[0]
        self.first, self.second = w.linear("mm.1", width, n * self.n_merge**2), w.linear("mm.2", h.n_out, width)

    def add(self, tile: Tile) -> list[Rows]:
        h, b = self.hparams, tile.b
        order = block_order(tile.rows, tile.columns, self.n_merge)
        row, column = order // tile.columns, order % tile.columns
        tile.named(TURNS, axial_turns(row, column, h.n_embd // h.n_head, h.freq_base))
        tile.named(NEAR, near_patches(tile.rows, tile.columns, order, h.n_taps))
        x = b.matmul(tile.patches, self.patch, "patch_embd")
        stream = Stream(b, b.norm(x, self.patch_norm[0], h.eps, bias=self.patch_norm[1]), h.eps)
        for block in self.blocks:
            block.build(stream, tile.memory)
        y = b.norm(stream.rows(), self.norm[0], self.EPS, bias=self.norm[1])
        with tile.within(tile.counted(tile.n // self.n_merge**2)):
            y = self.first.add(b, tile.joined(y, self.n_merge**2))
            b.op(gelu, count=b.batch.n_tok, x=y, n=y.n)
            return [self.second.add(b, y)]
