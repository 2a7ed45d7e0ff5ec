"""Qwen3-VL and Qwen3.5: RoPE by row and column, a merger of neighbouring patches; in Qwen3-VL outputs of some layers
have mergers of their own. arXiv:2511.21631"""

from ..kernels.rows import elementwise
from ..kernels.rows.gelu import gelu, gelu_tanh
from ..layers.feed_forward import FeedForward
from ..program.builder import Rows
from .layers import TURNS, PatchAttention, Stream, TowerBlock
from .places import axial_turns, block_order, cornered
from .tile import Tile
from .tower import Floats, VisionTower
from .weights import Linear, TowerWeights

FRAMES = 2  # of a patch


class Merger:
    """Joins n_row neighbouring patches, after a norm of each or before a norm of all, then two layers with GELU."""

    def __init__(self, w: TowerWeights, norm: str, layers: tuple[str, str], sizes: tuple[int, int, int]) -> None:
        """norm, layers: names of tensors. sizes: of a patch, of the joined patches, of the result."""
        n, self.n_all, n_out = sizes
        self.n_row = self.n_all // n
        first = w.gguf.info(f"{norm}.weight").shape[0]
        self.norm, self.joins_first = w.norm(norm, self.n_all if first == self.n_all else n), first == self.n_all
        self.first = w.linear(layers[0], self.n_all, self.n_all)
        self.second = w.linear(layers[1], n_out, self.n_all)

    def add(self, tile: Tile, x: Rows, eps: float) -> Rows:
        b = tile.b
        if not self.joins_first:
            x = b.norm(x, self.norm[0], eps, bias=self.norm[1])
        with tile.within(tile.counted(tile.n // self.n_row)):
            y = tile.joined(x, self.n_row)
            if self.joins_first:
                y = b.norm(y, self.norm[0], eps, bias=self.norm[1])
            y = self.first.add(b, y)
            b.op(gelu, count=b.batch.n_tok, x=y, n=y.n)
            return self.second.add(b, y)


class FirstFrame(VisionTower):
    """A tower whose patches come block by block, each with two equal frames."""

    def arranged(self, patches: Floats, rows: int, columns: int) -> Floats:
        """The first frame of each patch."""
        n = len(patches)
        return patches.reshape(n, 3, -1, self.hparams.patch_size**2)[:, :, 0].reshape(n, -1)


class QwenVl(FirstFrame):
    """The tower of Qwen3-VL and Qwen3.5."""

    def load(self, w: TowerWeights) -> None:
        h = self.hparams
        self.n_merge = h.n_merge
        n = h.n_embd
        self.patch = Linear("patch_embd", w.patches(n, h.patch_size, frames=FRAMES), w.vector("v.patch_embd.bias", n))
        shape = w.gguf.info("v.position_embd.weight").shape
        self.positions = w.array("v.position_embd.weight", shape[0], n)
        d_head = self.head_size(4)
        self.blocks = []
        for i in range(h.n_layer):
            attention = PatchAttention(i, n, h.n_head, h.n_head, d_head, fused=True, turned=True)
            self.blocks.append(TowerBlock(i, n, attention, FeedForward(i, n, h.n_ff, act=gelu_tanh)))
            self.blocks[-1].load(w)
        sizes = n, n * h.n_merge**2, h.n_out
        self.merger = Merger(w, "v.post_ln", ("mm.0", "mm.2"), sizes)
        self.deepstack = {
            i: Merger(w, f"v.deepstack.{i}.norm", (f"v.deepstack.{i}.fc1", f"v.deepstack.{i}.fc2"), sizes)
            for i, is_read in enumerate(h.deepstack)
            if is_read
        }

    @property
    def n_added(self) -> int:
        return len(self.deepstack)

    def add(self, tile: Tile) -> list[Rows]:
        h, b = self.hparams, tile.b
        order = block_order(tile.rows, tile.columns, h.n_merge)
        d_head = h.n_embd // h.n_head
        row, column = order // tile.columns, order % tile.columns
        tile.named(TURNS, axial_turns(row, column, d_head, h.freq_base))
        x = self.patch.add(b, tile.patches)
        places = tile.constant_rows(cornered(self.positions, tile.rows, tile.columns)[order])
        b.op(elementwise.add_rows, name="positions", count=b.batch.n_tok, x=x, residual=places, n=x.n)
        stream, added = Stream(b, x, h.eps), []
        for i, block in enumerate(self.blocks):
            block.build(stream, tile.memory)
            if i in self.deepstack:
                added.append(self.deepstack[i].add(tile, stream.rows(), h.eps))
        return [self.merger.add(tile, stream.rows(), h.eps), *added]
