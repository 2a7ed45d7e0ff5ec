"""Keys and values of the attention layers, in pages that sequences share where their prefixes are equal."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..kernels.attention.kv import K_LANES, PAGE, KVType, padded_head, pages_of
from .mapped import mapped_zeros
from .pool import IndexPool
from .rotation import Rotation, decoded, encoded
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
    """

    layer: int
    n_kv: int
    d_head: int
    rotation: Rotation | None = None
    window: int = 0
    d_value: int = 0
    latent: bool = False
    aligned: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "d_value", self.d_value or self.d_head)

    @property
    def mixer(self) -> str:
        """The kind of the layer, in words."""
        kind = "chunks" if self.aligned else "window"
        return f"attention, {kind} of {self.window}" if self.window else "attention"

    def bytes_per_token(self, kind: KVType) -> int:
        return self.n_kv * (kind.row_bytes(self.d_head) + (0 if self.latent else kind.row_bytes(self.d_value)))


class AttentionMemory:
    """Pages of keys, values and rows of all attention layers, and a table of the pages of every sequence.

    K and V are u8 [page][n_kv][PAGE / 16][bytes of 16 positions] per layer (the bytes: kernels/attention/kv.py); there
    is no V where values are parts of keys. Rows are u8 [page][row][n_head][bytes of a row] per part of a layer
    (rows.py).

    A page holds PAGE tokens of all layers, in the order of the sequence: a "position" here counts tokens, whatever
    position RoPE gave them. A page with several owners is copied before it is written. Pages become resident when they
    are written, so a large `n_ctx` costs nothing until it is used. n_spare: pages beyond the needs of n_slots sequences
    of n_ctx tokens.
    """

    def __init__(
        self, specs: list[AttentionSpec | RowsSpec], n_slots: int, n_ctx: int, kind: KVType, n_spare: int = 0
    ) -> None:
        self.specs, self.n_ctx, self.kind = specs, n_ctx, kind
        self.pairs = [s for s in specs if isinstance(s, AttentionSpec)]
        self.row_specs = [s for s in specs if isinstance(s, RowsSpec)]
        self.table = mapped_zeros((n_slots, pages_of(n_ctx)), np.int64)
        self.pool = IndexPool(n_slots * pages_of(n_ctx) + n_spare if specs else 0, "pages of keys and values")
        self._pages: list[list[int]] = [[] for _ in range(n_slots)]  # the used part of `table`
        self.k = {s.layer: self._mapped(s, s.d_head) for s in self.pairs}
        self.v = {s.layer: self._mapped(s, s.d_value) for s in self.pairs if not s.latent}
        self.rows = {s.key: mapped_zeros((self.n_stored, *s.page_shape(kind)), np.uint8) for s in self.row_specs}

    @property
    def n_stored(self) -> int:
        """Pages that the arrays have room for."""
        return self.pool.size

    def _mapped(self, s: AttentionSpec, width: int) -> npt.NDArray[np.uint8]:
        shape = (self.n_stored, s.n_kv, PAGE // K_LANES, K_LANES * self.kind.row_bytes(width))
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
        for s in self.pairs:
            if s.rotation is None:
                continue
            views, name = self._views(s), f"blk.{s.layer}.k"
            values, scales = views[name], views.get(name + ".scale")
            for first in range(0, len(moved), MOVED_AT_ONCE):
                part = moved[first : first + MOVED_AT_ONCE]
                at = self._at(slot, start + part)
                with np.errstate(invalid="ignore", over="ignore"):  # infinities and NaN become NaN
                    keys = s.rotation.turned(decoded(values[at], None if scales is None else scales[at]), deltas[part])
                    values[at], new_scales = encoded(keys, values.dtype)
                if scales is not None:
                    scales[at] = new_scales

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
        for stored in (*self.k.values(), *self.v.values(), *self.rows.values()):
            stored[target] = stored[source]

    # --- as arrays without padding ---
    def layout(self, end: int, start: int = 0) -> ArrayLayout:
        """Name -> (dtype, shape) of the arrays that `export` yields for positions start..end.

        Keys are [n, n_kv, d_head]; values, unless parts of the keys, [n, n_kv, d_value]; f32, f16 or i8, for q8_0 with
        scales f16 [n, n_kv, group]. Rows are [n, n_head, n values], only complete ones.
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
        for stored in (*self.k.values(), *self.v.values(), *self.rows.values()):
            stored[pages[1:]] = stored[pages[0]]

    def _views(self, s: AttentionSpec) -> dict[str, np.ndarray]:
        """Name -> [page, PAGE / 16, 16, n_kv, d_head or d_value] of keys and values, [..., group] of scales."""
        kind, d_pad = self.kind, padded_head(s.d_head)
        dtype = {"f32": np.float32, "f16": np.float16, "q8_0": np.int8}[kind.name]
        k, size = self.k[s.layer], kind.item * d_pad
        name = f"blk.{s.layer}."
        keys = k[..., : K_LANES * size].view(dtype).reshape(*k.shape[:3], d_pad, K_LANES)[:, :, :, : s.d_head]
        views = {name + "k": keys.transpose(0, 2, 4, 1, 3)}
        if kind.scale:
            scales = k[..., K_LANES * size :].view(np.float16).reshape(*k.shape[:3], -1, K_LANES)
            views[name + "k.scale"] = scales.transpose(0, 2, 4, 1, 3)
        if s.latent:
            return views
        v, v_size = self.v[s.layer], kind.item * padded_head(s.d_value)
        v = v.reshape(*v.shape[:3], K_LANES, -1)
        views[name + "v"] = v[..., :v_size].view(dtype)[..., : s.d_value].transpose(0, 2, 3, 1, 4)
        if kind.scale:
            views[name + "v.scale"] = v[..., v_size:].view(np.float16).transpose(0, 2, 3, 1, 4)
        return views


def _random(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype, name: str) -> np.ndarray:
    """Random values in the stored type or, where the name ends in .scale, random scales."""
    some = rng.standard_normal(shape)
    if name.endswith(".scale"):
        some = np.abs(some) / 64
    elif dtype == np.int8:
        some = np.clip(np.rint(some * 40), -127, 127)
    return some.astype(dtype)
