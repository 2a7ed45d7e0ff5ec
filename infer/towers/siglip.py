"""SigLIP: learned positions, pre-norm blocks; with the projectors of SmolVLM, LFM2-VL, Gemma 3. arXiv:2303.15343"""

from typing import ClassVar

import numpy as np

from hybrid.quant.ggml.errors import UsageError

from ..kernels.rows import elementwise
from ..kernels.rows.gelu import gelu, gelu_tanh
from ..layers.feed_forward import FeedForward
from ..program.builder import Rows
from .layers import PatchAttention, Stream, TowerBlock
from .places import block_order, smoothed
from .tile import Tile
from .tower import Floats, VisionTower
from .weights import Linear, TowerWeights


class Siglip(VisionTower):
    """SigLIP. Patches come in raster order and are read block by block: a projector takes neighbours."""

    is_square: ClassVar[bool] = True  # positions are for one size alone

    def load(self, w: TowerWeights) -> None:
        h = self.hparams
        n, self.n_merge = h.n_embd, self.merged()
        matrix = w.patches(n, h.patch_size, channels_last=self.channels_last)
        self.patch = Linear("patch_embd", matrix, w.vector("v.patch_embd.bias", n))
        self.positions = w.array("v.position_embd.weight", *w.gguf.info("v.position_embd.weight").shape[:1], n)
        self.blocks = []
        for i in range(h.n_layer):
            attention = PatchAttention(i, n, h.n_head, h.n_head, self.head_size())
            self.blocks.append(TowerBlock(i, n, attention, FeedForward(i, n, h.n_ff, act=gelu_tanh)))
            self.blocks[-1].load(w)
        self.load_end(w)

    def merged(self) -> int:
        """Patches of a side of a block."""
        n: int = self.hparams.n_merge
        if n < 1:
            raise self.hparams.wrong(self.gguf, "n_merge", "at least 1")
        return n

    def load_end(self, w: TowerWeights) -> None:
        """Load the last norm and the projector."""
        self.post_norm = w.norm("v.post_ln", self.hparams.n_embd)
        self.load_projector(w)

    def load_projector(self, w: TowerWeights) -> None:
        """Load the projector."""
        raise NotImplementedError

    def order(self, rows: int, columns: int) -> np.ndarray:
        """Raster numbers of the patches in the order of reading."""
        return block_order(rows, columns, self.n_merge)

    def arranged(self, patches: Floats, rows: int, columns: int) -> Floats:
        ordered: Floats = patches[self.order(rows, columns)]
        return ordered

    def positions_of(self, rows: int, columns: int) -> Floats:
        """Learned positions in raster order."""
        return self.positions

    def check_size(self, rows: int, columns: int) -> None:
        super().check_size(rows, columns)
        side = round(len(self.positions) ** 0.5)
        if self.is_square and (rows, columns) != (side, side):
            raise UsageError(f"a tile of {rows} x {columns} patches, the tower reads tiles of {side} x {side}.")

    def add(self, tile: Tile) -> list[Rows]:
        b = tile.b
        x = self.patch.add(b, tile.patches)
        order = self.order(tile.rows, tile.columns)
        places = tile.constant_rows(self.positions_of(tile.rows, tile.columns)[order])
        b.op(elementwise.add_rows, name="positions", count=b.batch.n_tok, x=x, residual=places, n=x.n)
        stream = Stream(b, x, self.hparams.eps)
        return self.add_blocks(tile, stream)

    def add_blocks(self, tile: Tile, stream: Stream) -> list[Rows]:
        """Add the blocks, the last norm and the projector."""
        for block in self.blocks:
            block.build(stream, tile.memory)
        x = stream.normed(self.post_norm)
        with tile.within(tile.counted(tile.n // self.n_merge**2)):
            return [self.add_projector(tile, x)]

    def add_projector(self, tile: Tile, x: Rows) -> Rows:
        """Add the projector, within the batch of features; x: the patches after the last norm."""
        raise NotImplementedError


class SmolVlm(Siglip):
    """SmolVLM and Idefics 3: patches of a block side by side, one matrix. arXiv:2504.05299"""

    def load_projector(self, w: TowerWeights) -> None:
        h = self.hparams
        self.project = w.linear("mm.model.fc", h.n_out, h.n_embd * self.n_merge**2)

    def add_projector(self, tile: Tile, x: Rows) -> Rows:
        return self.project.add(tile.b, tile.joined(x, self.n_merge**2))


class Lfm2Vl(Siglip):
    """LFM2-VL: positions for any grid; patches of a block side by side, a norm, two layers with GELU. Of Liquid AI."""

    channels_last = True
    is_square = False
    EPS = 1e-5  # of the projector's norm

    def load_projector(self, w: TowerWeights) -> None:
        h = self.hparams
        n = h.n_embd * self.n_merge**2
        self.norm = w.norm("mm.input_norm", n) if "mm.input_norm.weight" in w else None
        width = w.gguf.info("mm.1.weight").shape[0]
        self.first, self.second = w.linear("mm.1", width, n), w.linear("mm.2", h.n_out, width)

    def positions_of(self, rows: int, columns: int) -> Floats:
        return smoothed(self.positions, rows, columns)

    def add_projector(self, tile: Tile, x: Rows) -> Rows:
        b, y = tile.b, tile.joined(x, self.n_merge**2)
        if self.norm is not None:
            y = b.norm(y, self.norm[0], self.EPS, bias=self.norm[1])
        y = self.first.add(b, y)
        b.op(gelu, count=b.batch.n_tok, x=y, n=y.n)
        return self.second.add(b, y)


class Gemma3Vl(Siglip):
    """Gemma 3: means of blocks, an RMS norm, one matrix. arXiv:2503.19786"""

    USUAL_MERGE = 4  # patches of a side of a block, if the file does not say

    def merged(self) -> int:
        n: int = self.hparams.n_merge or self.USUAL_MERGE
        return n

    def load_projector(self, w: TowerWeights) -> None:
        h = self.hparams
        self.norm = w.vector("mm.soft_emb_norm.weight", h.n_embd)
        # in the file as in the checkpoint: to be multiplied from the other side
        self.project = w.made("mm.input_projection", w.array("mm.input_projection.weight", h.n_embd, h.n_out).T)

    def add_projector(self, tile: Tile, x: Rows) -> Rows:
        b = tile.b
        y = b.norm(tile.pooled(x, self.n_merge**2), self.norm, self.hparams.eps)
        return b.matmul(y, self.project, "mm.input_projection")
