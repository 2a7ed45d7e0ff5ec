"""Parts of towers: attention among the patches of a picture, and pre-norm blocks."""

from collections.abc import Sequence
from dataclasses import dataclass

from ..kernels.attention.kv import CACHE_TYPES, F32_KV, PAGE
from ..kernels.attention.rope import NEOX, rope
from ..kernels.rows import elementwise
from ..layers.attention import EncoderAttention, Pages
from ..layers.base import Layer
from ..memory import HybridMemory
from ..program.builder import Builder, Ref, Rows
from .weights import TowerWeights

TURNS = "turns"  # the name of the rows of cos and sin of each patch


@dataclass
class PatchAttention(EncoderAttention):
    """Attention among all patches of a picture, or of a window. turned: heads are rotated by rows named TURNS, of
    d_head / 2 pairs, as for RoPE at the patch's own index."""

    turned: bool = False

    def _norm_and_turn(self, b: Builder, q: Rows, k: Rows, v: Rows, memory: HybridMemory) -> None:
        super()._norm_and_turn(b, q, k, v, memory)
        for rows, heads in ((q, self.n_head), (k, self.n_kv)) if self.turned else ():
            b.op(
                rope, ctl=b.batch.ctl, pos=b.batch.rope_pos, x=rows, n_head=heads, d_head=self.d_head,
                n_rot=self.d_head, table=b.named[TURNS].ref, style=NEOX,
            )  # fmt: skip


@dataclass
class SharedPages(PatchAttention):
    """Attention whose keys and values may be of other rows than its queries: `reserve`, `store`, then `attend`."""

    def reserve(self, b: Builder, memory: HybridMemory) -> None:
        """Make room for the keys and values of the windows whose pages the memory's table lists."""
        table = memory.attention.table
        size = (int(table.max()) + 1) * PAGE * self.n_kv * F32_KV.row_bytes(self.d_head)
        keys, values = (Ref(b.buffer(size)) for _ in range(2))
        self._pages = Pages(keys, values, table.ctypes.data, table.strides[0], CACHE_TYPES["f32"])


class Stream:
    """A residual stream: layers add to it, and the next norm, or `rows`, carries the addition out."""

    def __init__(self, b: Builder, x: Rows, eps: float) -> None:
        self.b, self.x, self.eps = b, x, eps
        self._pending: Rows | None = None

    def normed(self, norm: tuple[int, int]) -> Rows:
        """A norm of the stream. norm: addresses of factors and biases."""
        out = self.b.norm(self.x, norm[0], self.eps, self._pending, bias=norm[1])
        self._pending = None
        return out

    def add(self, rows: Rows) -> None:
        self.rows()
        self._pending = rows

    def rows(self) -> Rows:
        """The stream itself."""
        if self._pending is not None:
            self.b.op(elementwise.add_rows, count=self.b.batch.n_tok, x=self.x, residual=self._pending, n=self.x.n)
            self._pending = None
        return self.x


@dataclass
class TowerBlock:
    """x += mixer(norm(x)); x += feed_forward(norm(x)). norms: names of the two norms."""

    layer: int
    n_embd: int
    mixer: Layer
    feed_forward: Layer
    norms: Sequence[str] = ("ln1", "ln2")

    def load(self, w: TowerWeights) -> None:
        self.weights = [w.norm(f"v.blk.{self.layer}.{name}", self.n_embd) for name in self.norms]
        self.mixer.load(w)
        self.feed_forward.load(w)

    def build(self, stream: Stream, memory: HybridMemory) -> None:
        for norm, layer in zip(self.weights, (self.mixer, self.feed_forward), strict=True):
            stream.add(layer.build(stream.b, stream.normed(norm), memory))
