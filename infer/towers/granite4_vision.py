"""Granite 4 Vision: SigLIP on tiles; for several layers of the text model a projector, in which a few queries of each
window attend to each other and to the window's patches. Of ibm-granite."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hybrid.quant.ggml.errors import UsageError

from ..kernels.rows import elementwise
from ..kernels.rows.gelu import gelu
from ..pictures.pixels import Unpadded
from ..program.builder import Batch, Rows
from .layers import SharedPages, Stream
from .places import block_order
from .siglip import Siglip
from .tile import Tile
from .tower import Floats, Run, Size
from .weights import Linear, TowerWeights


@dataclass(frozen=True)
class Windows:
    """The windows of a tile.

    patches        the batch in which patches see the patches of their window
    queries        the batch in which queries see the queries of their window
    over_patches   the batch in which queries see the patches of their window
    """

    n: int
    patches: Batch
    queries: Batch
    over_patches: Batch


class _Attention:
    """Attention of queries to `keys`, then a norm of the sum with the queries."""

    def __init__(self, w: TowerWeights, prefix: str, n: int, n_head: int, eps: float) -> None:
        self.parts = {part: w.linear(prefix + part, n, n) for part in ("q", "k", "v", "out")}
        self.norm, self.eps, self.n, self.n_head = w.norm(f"{prefix}norm", n), eps, n, n_head

    def add(self, tile: Tile, x: Rows, keys: Rows, seen: tuple[Batch, Batch], lengths: list[int]) -> Rows:
        """seen: the batches of queries and of keys. lengths: of the windows' keys."""
        b, (of_queries, of_keys) = tile.b, seen
        attention = SharedPages(0, self.n, self.n_head, self.n_head, self.n // self.n_head)
        memory = tile.texts(lengths)
        attention.reserve(b, memory)
        with tile.within(of_keys):
            attention.store(b, self.parts["k"].add(b, keys), self.parts["v"].add(b, keys), memory)
        with tile.within(of_queries):
            out = self.parts["out"].add(b, attention.attend(b, self.parts["q"].add(b, x), memory))
            return b.norm(x, self.norm[0], self.eps, out, bias=self.norm[1])


class WindowProjector:
    """A projector of Granite 4 Vision. offset: the patch of each 2 x 2 that a query begins with; -1: their mean."""

    EPS = 1e-6  # of the norm of patches

    def __init__(self, w: TowerWeights, k: int, h: Any) -> None:
        p, n, self.h, self.offset = f"v.proj_blk.{k}.", h.n_embd, h, h.offsets[k]
        n_head = max(1, n // 64)
        self.eps = h.eps_projector
        self.query = w.squeezed(f"{p}query", h.query_side**2, n)
        self.places = w.squeezed(f"{p}img_pos", h.window_side**2, n)
        self.norm, self.query_norm = w.norm(f"{p}norm", n), w.norm(f"{p}post_norm", n)
        self.among = _Attention(w, f"{p}self_attn_", n, n_head, self.eps)
        self.across = _Attention(w, f"{p}cross_attn_", n, n_head, self.eps)
        n_ff = w.gguf.info(f"{p}ffn_up.weight").shape[0]
        self.up, self.down = w.linear(f"{p}ffn_up", n_ff, n), w.linear(f"{p}ffn_down", n, n_ff)
        self.ffn_norm = w.norm(f"{p}ffn_norm", n)
        self.out: Linear = w.linear(f"{p}linear", h.n_out, n)

    def add(self, tile: Tile, x: Rows, windows: Windows, inner: np.ndarray) -> Rows:
        """x: the output of a block, window by window, in each window in the order `inner` of its patches."""
        b, h = tile.b, self.h
        cell = (h.window_side // h.query_side) ** 2
        patches = b.norm(x, self.norm[0], self.EPS, bias=self.norm[1])
        with tile.within(windows.queries):
            if self.offset < 0:
                y = tile.pooled(patches, cell)
            else:
                y, source = b.rows(x.n), Rows(patches.base, x.n, cell * patches.ld, patches.offset)
                chosen = Rows(source.base, x.n, source.ld, source.offset + self.offset * patches.ld)
                b.op(elementwise.copy_rows, name="chosen", count=b.batch.n_tok, x=chosen, out=y, n=y.n)
            asked = tile.constant_rows(np.tile(self.query, (windows.n, 1)))
            b.op(elementwise.add_rows, name="query", count=b.batch.n_tok, x=y, residual=asked, n=y.n)
            y = b.norm(y, self.query_norm[0], self.eps, bias=self.query_norm[1])
        places = tile.constant_rows(np.tile(self.places[inner], (windows.n, 1)))
        b.op(elementwise.add_rows, name="img_pos", count=b.batch.n_tok, x=patches, residual=places, n=x.n)
        n_query, n_patch = h.query_side**2, h.window_side**2
        y = self.among.add(tile, y, y, (windows.queries, windows.queries), [n_query] * windows.n)
        y = self.across.add(tile, y, patches, (windows.over_patches, windows.patches), [n_patch] * windows.n)
        with tile.within(windows.queries):
            z = self.up.add(b, y)
            b.op(gelu, count=b.batch.n_tok, x=z, n=z.n)
            y = b.norm(y, self.ffn_norm[0], self.eps, self.down.add(b, z), bias=self.ffn_norm[1])
            return self.out.add(b, y)


class Granite4Vision(Siglip):
    """The tower of Granite 4 Vision. Its picture is one run: the features of the whole, then the tiles' features as
    one grid, of which each row ends with a newline."""

    def merged(self) -> int:
        side: int = self.hparams.window_side
        return side

    def load_end(self, w: TowerWeights) -> None:
        h = self.hparams
        if h.window_side % h.query_side or (max(h.offsets) >= 0 and h.window_side != 2 * h.query_side):
            raise w.wrong("vision.projector.window_side", h.window_side, f"a multiple of {h.query_side}")
        if len(h.layers) != len(h.offsets) or not all(0 <= block < h.n_layer for block in h.layers):
            raise w.wrong("vision.feature_layer", list(h.layers), f"a block for each of {len(h.offsets)} projectors")
        self.inner = block_order(h.window_side, h.window_side, h.window_side // h.query_side)
        w.ignore("v.post_ln.weight", "v.post_ln.bias")  # the reference does not use them
        self.projectors = [WindowProjector(w, k, h) for k in range(len(h.layers))]
        self.newline = w.array("v.image_newline", h.n_out)

    @property
    def n_added(self) -> int:
        return len(self.projectors) - 1

    def order(self, rows: int, columns: int) -> np.ndarray:
        return super().order(rows, columns).reshape(-1, len(self.inner))[:, self.inner].reshape(-1)

    def grid(self, rows: int, columns: int) -> Size:
        h = self.hparams
        return rows * h.query_side // h.window_side, columns * h.query_side // h.window_side

    def restored(self, features: Floats, rows: int, columns: int) -> Floats:
        out = np.empty_like(features)
        out[block_order(*self.grid(rows, columns), self.hparams.query_side)] = features
        return out

    def add_blocks(self, tile: Tile, stream: Stream) -> list[Rows]:
        h = self.hparams
        n = tile.n // h.window_side**2
        n_query, n_patch = [h.query_side**2] * n, [h.window_side**2] * n
        windows = Windows(n, tile.windows(n_patch), tile.windows(n_query), tile.windows(n_query, n_patch))
        made: dict[int, Rows] = {}
        for i, block in enumerate(self.blocks):
            block.build(stream, tile.memory)
            for k in (k for k, source in enumerate(h.layers) if source == i):
                made[k] = self.projectors[k].add(tile, stream.rows(), windows, self.inner)
        return [made[k] for k in range(len(made))]

    def runs(self, tiles: Sequence[list[Floats]], sizes: Sequence[Size], unpadded: Unpadded | None) -> list[Run]:
        if unpadded is None:
            raise UsageError("the picture's tiles are given without the features that are not padding.")
        sets = [self._packed([tile[k] for tile in tiles], sizes, unpadded) for k in range(len(tiles[0]))]
        return [(sets, (1, len(sets[0])))]

    def _packed(self, tiles: Sequence[Floats], sizes: Sequence[Size], u: Unpadded) -> Floats:
        rows, columns = self.grid(*sizes[0])
        down, across = u.rows // rows, u.columns // columns
        if down * across != len(tiles) - 1:
            raise UsageError(f"{len(tiles) - 1} tiles for a grid of {down} x {across}.")
        whole, width = tiles[0], self.hparams.n_out
        grid = np.stack(tiles[1:]).reshape(down, across, rows, columns, width).transpose(0, 2, 1, 3, 4)
        used = grid.reshape(u.rows, u.columns, width)[u.top : u.bottom, u.left : u.right]
        ends = np.broadcast_to(self.newline, (len(used), 1, width))
        return np.concatenate([whole, np.concatenate([used, ends], axis=1).reshape(-1, width)])
