"""Keys and values of the attention layers, in pages that sequences share where their prefixes are equal."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..kernels.attention.kv import (
    K_LANES,
    LARGEST_BLOCK_OF_VALUES,
    PAGE,
    CacheTypes,
    KVType,
    hadamard_block,
    pages_of,
)
from .kv_codec import decoded, encoded, key_views, transformed, value_views
from .mapped import mapped_zeros
from .pool import IndexPool
from .rotation import Rotation
from .rows import RowsSpec

MOVED_AT_ONCE = 1024  # positions of a layer that are moved in one step
ArrayLayout = dict[str, tuple[np.dtype, tuple[int, ...]]]  # array name -> dtype, shape


@dataclass(frozen=True)
class AttentionSpec:
    """The memory of one attention layer per token: `n_kv` heads of `d_head` keys and `d_value` values.

    rotation  RoPE of the keys; None: keys do not depend on their position
    window    a token attends to the last `window` tokens; 0: to all
    d_value   at most d_head; 0: d_head
    latent    the values are the last d_value values of each key, and are not stored separately
    aligned   windows begin at multiples of their size
    prefix    positions before every sequence, whole pages, that all tokens see: the same for all sequences
    """

    layer: int
    n_kv: int
    d_head: int
    rotation: Rotation | None = None
    window: int = 0
    d_value: int = 0
    latent: bool = False
    aligned: bool = False
    prefix: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "d_value", self.d_value or self.d_head)

    @property
    def mixer(self) -> str:
        """The kind of the layer, in words."""
        kind = "chunks" if self.aligned else "window"
        return f"attention, {kind} of {self.window}" if self.window else "attention"

    def bytes_per_token(self, kind: CacheTypes) -> int:
        values = 0 if self.latent else kind.values.row_bytes(self.d_value)
        return self.n_kv * (kind.keys.row_bytes(self.d_head) + values)

    def blocks(self, kind: CacheTypes) -> tuple[int, int]:
        """Blocks of the Walsh-Hadamard transform in whose basis keys and values are stored; 0: none."""
        if self.latent:  # values are parts of keys: both their ends lie between blocks
            block = hadamard_block(kind.keys, math.gcd(self.d_head, self.d_value))
            return block, block
        return (
            hadamard_block(kind.keys, self.d_head),
            hadamard_block(kind.values, self.d_value, LARGEST_BLOCK_OF_VALUES),
        )


class AttentionMemory:
    """Pages of keys, values and rows of all attention layers, and a table of the pages of every sequence.

    K and V are u8 [page][n_kv][PAGE / 16][bytes of 16 positions] per layer (the bytes: kernels/attention/kv.py); there
    is no V where values are parts of keys. Rows are u8 [page][row][n_head][bytes of a row] per part of a layer
    (rows.py).

    A page holds PAGE tokens of all layers, in the order of the sequence: a "position" here counts tokens, whatever
    position RoPE gave them. A page with several owners is copied before it is written. Pages become resident when they
    are written, so a large `n_ctx` costs nothing until it is used. n_spare: pages beyond the needs of n_slots sequences
    of n_ctx tokens.

    prefix: the pages that all sequences begin after, in order; their numbers stand before each row of the table.
    """

    def __init__(
        self, specs: list[AttentionSpec | RowsSpec], n_slots: int, n_ctx: int, kind: CacheTypes, n_spare: int = 0
    ) -> None:
        self.specs, self.n_ctx, self.kind = specs, n_ctx, kind
        self.pairs = [s for s in specs if isinstance(s, AttentionSpec)]
        self.row_specs = [s for s in specs if isinstance(s, RowsSpec)]
        self.pool = IndexPool(n_slots * pages_of(n_ctx) + n_spare if specs else 0, "pages of keys and values")
        n_prefix = pages_of(max((s.prefix for s in self.pairs), default=0))
        self.prefix = [self.pool.size + i for i in range(n_prefix)]  # places that the pool does not hand out
        whole = mapped_zeros((n_slots, n_prefix + pages_of(n_ctx)), np.int64)
        whole[:, :n_prefix] = self.prefix
        self.table = whole[:, n_prefix:]
        self._pages: list[list[int]] = [[] for _ in range(n_slots)]  # the used part of `table`
        self.k = {s.layer: self._mapped(s, kind.keys, s.d_head) for s in self.pairs}
        self.v = {s.layer: self._mapped(s, kind.values, s.d_value) for s in self.pairs if not s.latent}
        self.rows = {s.key: mapped_zeros((self.n_stored, *s.page_shape(kind)), np.uint8) for s in self.row_specs}

    @property
    def n_stored(self) -> int:
        """Pages that the arrays have room for."""
        return self.pool.size + len(self.prefix)

    def described(self) -> dict[str, Any] | None:
        """Types of keys and values, and per layer the blocks of their basis, for headers of files; None if the types
        are f32 or f16, which need no words."""
        types = (self.kind.keys, self.kind.values)
        if not self.specs or (all(kind.name in ("f32", "f16") for kind in types) and types[0] is types[1]):
            return None
        blocks = [list(s.blocks(self.kind)) for s in self.pairs]
        return {"keys": types[0].name, "values": types[1].name, "hadamard": blocks}

    def in_basis(self, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Arrays of `layout`, but stored in the model's own basis -> in the basis of this memory, rounded once more."""
        out = dict(arrays)
        for s in self.pairs:
            sides = (("k", self.kind.keys, s.d_head), ("v", self.kind.values, s.d_value))
            for (part, kind, width), block in zip(sides[: 2 - s.latent], s.blocks(self.kind), strict=False):
                name = f"blk.{s.layer}.{part}"
                if block:
                    values = decoded({plane.name: arrays[name + plane.name] for plane in kind.planes}, kind, width)
                    for plane, new in encoded(transformed(values, block), kind).items():
                        out[name + plane] = new
        return out

    def _mapped(self, s: AttentionSpec, kind: KVType, width: int) -> npt.NDArray[np.uint8]:
        shape = (self.n_stored, s.n_kv, PAGE // K_LANES, K_LANES * kind.row_bytes(width))
        return mapped_zeros(shape, np.uint8)

    @property
    def bytes_per_token(self) -> int:
        return sum(s.bytes_per_token(self.kind) for s in self.specs)

    @property
    def bytes_per_page(self) -> int:
        return PAGE * self.bytes_per_token

    def pages(self, slot: int) -> list[int]:
        """The pages of a sequence, first positions first."""
        return list(self._pages[slot])

    def extend(self, slot: int, past: int, n: int) -> int:
        """Make unshared pages for n positions after `past`. Returns the position up to which the pages reach."""
        if not self.specs:
            return self.n_ctx
        held, end = self._pages[slot], pages_of(past + n)
        first = past // PAGE
        if first < len(held) and self.pool.owners(held[first]) > 1:
            self._put(slot, first, self._copied(held[first]))
        for i in range(len(held), end):
            self._put(slot, i, self.pool.take())
        return min(self.n_ctx, end * PAGE)

    def cut(self, slot: int, n: int) -> None:
        """Give back the pages after the first n positions."""
        held = self._pages[slot]
        while len(held) > pages_of(n):
            self.pool.drop(held.pop())

    def wipe(self, slot: int) -> None:
        """Empty the list of pages without telling the pool."""
        self._pages[slot] = []

    def is_sound(self, slot: int, n: int) -> bool:
        """Whether the sequence has pages for n tokens, and `table` agrees with its list of pages."""
        held = self._pages[slot]
        enough = not self.specs or len(held) >= pages_of(n)
        return (
            enough
            and all(0 <= page < self.pool.touched for page in held)
            and (self.table[slot, : len(held)].tolist() == held)
        )

    def adopt(self, slot: int, pages: list[int]) -> None:
        """Replace the sequence's pages with `pages`, shared with their other owners."""
        for page in pages:
            self.pool.share(page)
        self.cut(slot, 0)
        for i, page in enumerate(pages):
            self._put(slot, i, page)

    # --- moving positions ---
    def own(self, slot: int, start: int) -> None:
        """Copy the shared pages from position `start` on; call it before changing these positions."""
        for i in range(start // PAGE, len(self._pages[slot])):
            page = self._pages[slot][i]
            if self.pool.owners(page) > 1:
                self._put(slot, i, self._copied(page))

    def remove(self, slot: int, start: int, end: int, n: int) -> None:
        """Forget positions start..end of n; the later ones move down unchanged. The pages may have no other owner."""
        self.move_down(slot, start, end, n)
        self.cut(slot, n - (end - start))

    def move_down(self, slot: int, start: int, end: int, n: int) -> None:
        """Move keys and values of positions end..n down to `start`."""
        for s in self.pairs:
            for view in self._views(s).values():
                # ascending, so that everything is read before it is overwritten
                for first in range(end, n, MOVED_AT_ONCE):
                    cells = np.arange(first, min(n, first + MOVED_AT_ONCE))
                    view[self._at(slot, cells - (end - start))] = view[self._at(slot, cells)]

    def turn(self, slot: int, start: int, deltas: npt.NDArray[np.int64]) -> None:
        """Rotate keys from position `start` on by `deltas` i64 [n] positions. The pages may have no other owner."""
        moved = np.flatnonzero(deltas)
        kind = self.kind.keys
        for s in self.pairs:
            if s.rotation is None:
                continue
            views, block = self._planes(s)["k"], s.blocks(self.kind)[0]
            for first in range(0, len(moved), MOVED_AT_ONCE):
                part = moved[first : first + MOVED_AT_ONCE]
                at = self._at(slot, start + part)
                with np.errstate(invalid="ignore", over="ignore"):  # infinities and NaN become NaN
                    stored = decoded({name: view[at] for name, view in views.items()}, kind, s.d_head)
                    keys = s.rotation.turned(transformed(stored, block), deltas[part])
                    for name, new in encoded(transformed(keys, block), kind).items():
                        views[name][at] = new

    def _at(self, slot: int, cells: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], ...]:
        """Index of positions `cells` in the first three axes of the arrays of `_views`."""
        return self.table[slot, cells // PAGE], cells % PAGE // K_LANES, cells % K_LANES

    def _put(self, slot: int, i: int, page: int) -> None:
        held = self._pages[slot]
        held[i : i + 1] = [page]
        self.table[slot, i] = page

    def _copied(self, page: int) -> int:
        """Copy a page and drop one of its owners; returns the copy."""
        new = self.pool.take()
        self.copy_page(page, new)
        self.pool.drop(page)
        return new

    def copy_page(self, source: int, target: int) -> None:
        for stored in self.stored():
            stored[target] = stored[source]

    def stored(self) -> Iterator[npt.NDArray[np.uint8]]:
        """All arrays, in a fixed order; their first dimension is the page."""
        yield from (*self.k.values(), *self.v.values(), *self.rows.values())

    # --- as arrays without padding ---
    def layout(self, end: int, start: int = 0) -> ArrayLayout:
        """Name -> (dtype, shape) of the arrays that `export` yields for positions start..end.

        Planes of keys and of values (unless they are parts of keys) are [n, n_kv, element]: kernels/attention/kv.py.
        Rows are [n, n_head, element], only complete ones.
        """
        layout = {
            name: (view.dtype, (end - start, *view.shape[3:]))
            for s in self.pairs
            for name, view in self._views(s).items()
        }
        return layout | {
            name: (view.dtype, (s.count(start, end), *view.shape[2:]))
            for s in self.row_specs
            for name, view in s.views(self.rows[s.key], self.kind).items()
        }

    def export(self, pages: list[int], end: int, start: int = 0) -> Iterator[tuple[str, np.ndarray]]:
        """Yield (name, array) of positions start..end of every layer, in the stored type.

        pages: the first one holds `start`.
        """
        begin = start % PAGE
        for s in self.pairs:
            for name, view in self._views(s).items():
                rows = view[pages]
                yield name, rows.reshape(-1, *view.shape[3:])[begin : begin + end - start]
        for r in self.row_specs:
            page, row = r.places(start, end)
            for name, view in r.views(self.rows[r.key], self.kind).items():
                yield name, view[np.asarray(pages, np.int64)[page], row]

    def load(self, pages: list[int], end: int, arrays: dict[str, np.ndarray], start: int = 0) -> None:
        """Write arrays of `export`, whose dtypes and shapes have been checked, into `pages`; other positions stay.

        `arrays` may go beyond `end`.
        """
        begin = start % PAGE
        for s in self.pairs:
            for name, view in self._views(s).items():
                rows = view[pages].reshape(-1, *view.shape[3:])
                rows[begin : begin + end - start] = arrays[name][: end - start]
                view[pages] = rows.reshape(len(pages), *view.shape[1:])
        for r in self.row_specs:
            page, row = r.places(start, end)
            for name, view in r.views(self.rows[r.key], self.kind).items():
                view[np.asarray(pages, np.int64)[page], row] = arrays[name][: len(row)]

    def fill(self, slot: int, n: int, rng: np.random.Generator) -> None:
        """Give a sequence n random positions, every 16 the same: for benchmarks, where values do not matter."""
        self.cut(slot, 0)
        self.extend(slot, 0, n)
        self.fill_pages(self._pages[slot], rng)

    def fill_pages(self, pages: list[int], rng: np.random.Generator) -> None:
        """Fill these pages with the same random keys and values (every 16 positions the same) and rows."""
        if not pages:
            return
        for s in self.pairs:
            for name, view in self._views(s).items():
                view[pages[0]] = _random(rng, view.shape[2:], view.dtype, name)
        for r in self.row_specs:
            for name, view in r.views(self.rows[r.key], self.kind).items():
                view[pages[0]] = _random(rng, view.shape[1:], view.dtype, name)
        for stored in self.stored():
            stored[pages[1:]] = stored[pages[0]]

    def _views(self, s: AttentionSpec) -> dict[str, np.ndarray]:
        """Name -> [page, PAGE / 16, 16, n_kv, element] of each plane of keys and values."""
        return {
            f"blk.{s.layer}.{part}{plane}": view
            for part, views in self._planes(s).items()
            for plane, view in views.items()
        }

    def _planes(self, s: AttentionSpec) -> dict[str, dict[str, np.ndarray]]:
        """For keys, k, and values, v: name of a plane -> its view."""
        keys = key_views(self.k[s.layer], self.kind.keys, s.d_head)
        planes = {"k": {name: view.transpose(0, 2, 3, 1, 4) for name, view in keys.items()}}
        if not s.latent:
            values = value_views(self.v[s.layer], self.kind.values, s.d_value)
            planes["v"] = {name: view.transpose(0, 2, 3, 1, 4) for name, view in values.items()}
        return planes


def _random(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype, name: str) -> np.ndarray:
    """Random values in the stored type or, where the name ends in .scale, random scales."""
    some = rng.standard_normal(shape)
    if name.endswith((".scale", ".min")):
        some = np.abs(some) / 64
    elif dtype == np.uint16:  # bf16
        return (some.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    elif dtype.kind == "u":  # packed codes
        return rng.integers(0, 256, (*shape[:-1], shape[-1] * dtype.itemsize), np.uint8).view(dtype)
    elif dtype == np.int8:
        some = np.clip(np.rint(some * 40), -127, 127)
    return some.astype(dtype)
