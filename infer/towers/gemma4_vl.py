"""Gemma 4: positions of two tables, RoPE by column and row in the halves of a head, norms around both parts of a layer,
means of patches. Of Google."""

import math
from dataclasses import dataclass

import numpy as np

from hybrid.quant.ggml.errors import UsageError

from ..kernels.attention.rope import NEOX, rope
from ..kernels.rows import elementwise
from ..kernels.rows.affine import affine_rows
from ..layers.base import PostNorm
from ..layers.feed_forward import GatedFeedForward
from ..layers.head_norm import HeadNorm
from ..layers.shared_keys import NormedValues
from ..memory import HybridMemory
from ..program.builder import Builder, Rows
from .clamps import clamps_of
from .layers import PatchAttention, Stream, TowerBlock
from .places import block_order, turns
from .tile import Tile
from .tower import Floats, VisionTower
from .weights import TowerWeights

BY_COLUMN, BY_ROW = "turns by column", "turns by row"  # names of rows of cos and sin


@dataclass
class HalvedAttention(NormedValues, PatchAttention):
    """Attention whose heads rotate by the column in their first half, by the row in the second."""

    together: bool = True

    def _norm_and_turn(self, b: Builder, q: Rows, k: Rows, v: Rows, memory: HybridMemory) -> None:
        super()._norm_and_turn(b, q, k, v, memory)
        half = self.d_head // 2
        for rows, heads in ((q, self.n_head), (k, self.n_kv)):
            for first, table in ((0, BY_COLUMN), (half, BY_ROW)):
                b.op(
                    rope, ctl=b.batch.ctl, pos=b.batch.rope_pos, x=rows.columns(first, rows.n - first), n_head=heads,
                    d_head=self.d_head, n_rot=half, table=b.named[table].ref, style=NEOX,
                )  # fmt: skip


class Gemma4Vl(VisionTower):
    """The tower of Gemma 4. Patches come in raster order, as y, x, channel, with values from 0 to 1."""

    channels_last = True

    def load(self, w: TowerWeights) -> None:
        h = self.hparams
        n, self.n_merge = h.n_embd, h.n_merge
        self.clamps = clamps_of(w)
        self.patch = w.patches(n, h.patch_size, channels_last=True)
        self.positions = w.array("v.position_embd.weight", 2, w.gguf.info("v.position_embd.weight").shape[1], n)
        self.blocks = []
        for i in range(h.n_layer):
            d_head = w.gguf.info(f"v.blk.{i}.attn_q.weight").shape[0] // h.n_head
            n_kv = w.gguf.info(f"v.blk.{i}.attn_k.weight").shape[0] // max(1, d_head)
            attention = HalvedAttention(i, n, h.n_head, n_kv, d_head, scale=1.0, norm=HeadNorm(h.eps))
            feed_forward = GatedFeedForward(i, n, h.n_ff, activation="gelu")
            mixer = PostNorm(attention, f"blk.{i}.attn_post_norm.weight", n, h.eps)
            self.blocks.append(
                TowerBlock(i, n, mixer, PostNorm(feed_forward, f"blk.{i}.ffn_post_norm.weight", n, h.eps))
            )
            self.blocks[-1].load(w)
        self.standard = None
        if "v.std_bias" in w:
            self.standard = w.vector("v.std_scale", n), w.vector("v.std_bias", n, np.negative)
        self.project = w.matrix("mm.input_projection.weight", h.n_out, n)
        self.d_head = w.gguf.info("v.blk.0.attn_q.weight").shape[0] // h.n_head

    def arranged(self, patches: Floats, rows: int, columns: int) -> Floats:
        order = block_order(rows, columns, self.n_merge)
        values: Floats = np.float32(2) * (patches[order] - np.float32(0.5))
        return values

    def add(self, tile: Tile) -> list[Rows]:
        h, b = self.hparams, tile.b
        order = block_order(tile.rows, tile.columns, self.n_merge)
        row, column = order // tile.columns, order % tile.columns
        for name, places in ((BY_COLUMN, column), (BY_ROW, row)):
            tile.named(name, turns(places, self.d_head // 2, h.freq_base))
        x = b.matmul(tile.patches, self.patch, "patch_embd")
        learned = tile.constant_rows(self.positions[0, column] + self.positions[1, row])
        b.op(elementwise.add_rows, name="positions", count=b.batch.n_tok, x=x, residual=learned, n=x.n)
        stream = Stream(b, x, h.eps)
        for block in self.blocks:
            block.build(stream, tile.memory)
        x = stream.rows()
        with tile.within(tile.counted(tile.n // self.n_merge**2)):
            y = tile.pooled(x, self.n_merge**2, math.sqrt(h.n_embd))
            if self.standard is not None:
                scale, bias = self.standard
                b.op(affine_rows, name="standard", count=b.batch.n_tok, x=y, weight=scale, bias=bias, n=y.n)
            return [b.matmul(b.norm(y, 0, h.eps), self.project, "mm.input_projection")]

    def check_size(self, rows: int, columns: int) -> None:
        super().check_size(rows, columns)
        most = self.positions.shape[1]
        if max(rows, columns) > most:
            raise UsageError(f"a tile of {rows} x {columns} patches, the tower has {most} positions for a side.")
