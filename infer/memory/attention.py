"""Keys and values of the attention layers, in pages that sequences share where they begin alike."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..kernels.attention.kv import K_LANES, PAGE, KVType, padded_head, pages_of
from .mapped import mapped_zeros
from .pool import IndexPool
from .rotation import Rotation, decoded, encoded
from .rows import RowsSpec

MOVED_AT_ONCE = 1024  # positions of a layer
ArrayLayout = dict[str, tuple[np.dtype, tuple[int, ...]]]  # array name -> dtype, shape


@dataclass(frozen=True)
class AttentionSpec:
    """What one attention layer keeps per token: `n_kv` heads of `d_head` keys and `d_value` values.

    d_value   at most d_head; 0: d_head
    rotation of the keys, None: they do not depend on their position
    window    a token sees the last so many; 0: all
    latent    values are the last d_value values of the keys, and are not kept beside them
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
        """What the layer is, in words."""
        kind = "chunks" if self.aligned else "window"
        return f"attention, {kind} of {self.window}" if self.window else "attention"

    def bytes_per_token(self, kind: KVType) -> int:
        return self.n_kv * (kind.row_bytes(self.d_head) + (0 if self.latent else kind.row_bytes(self.d_value)))


class AttentionMemory:
    """K and V u8 [page][n_kv][PAGE / 16][bytes of 16 positions] per layer; the bytes: kernels/attention/kv.py. Rows u8
    [page][row][n_head][bytes of a row] per part of a layer: rows.py. There is no V where values are parts of keys.

    A page holds PAGE tokens of all layers, in the order of the sequence: what is said of positions here counts tokens,
    whatever positions RoPE gave them. `table` says which pages a sequence has. A page with
    several owners is copied before it is written. Pages become resident when they are written, so a large `n_ctx` costs
    nothing until it is used. n_spare: pages beyond those that n_slots sequences of n_ctx can use.
    """

    def __init__(
        self, specs: list[AttentionSpec | RowsSpec], n_slots: int, n_ctx: int, kind: KVType, n_spare: int = 0
    ) -> None:
        self.specs, self.n_ctx, self.kind = specs, n_ctx, kind
        self.pairs = [s for s in specs if isinstance(s, AttentionSpec)]
        self.row_specs = [s for s in specs if isinstance(s, RowsSpec)]
        self.table = mapped_zeros((n_slots, pages_of(n_ctx)), np.int64)
        self.pool = IndexPool(n_slots * pages_of(n_ctx) + n_spare if specs else 0, "pages of keys and values")
        self._pages: list[list[int]] = [[] for _ in range(n_slots)]  # the used part of the table
        self.k = {s.layer: self._mapped(s, s.d_head) for s in self.pairs}
        self.v = {s.layer: self._mapped(s, s.d_value) for s in self.pairs if not s.latent}
        self.rows = {s.key: mapped_zeros((self.n_stored, *s.page_shape(kind)), np.uint8) for s in self.row_specs}

    @property
    def n_stored(self) -> int:
        """Pages that there is memory for."""
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
        """Pages for n positions after `past`, which nobody else has. Returns the position up to which they reach."""
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
        """A sequence has no pages any more; nobody is told."""
        self._pages[slot] = []

    def is_sound(self, slot: int, n: int) -> bool:
        """Whether a sequence has pages for n tokens, and the table has the same ones."""
        held = self._pages[slot]
        enough = not self.specs or len(held) >= pages_of(n)
        return (
            enough
            and all(0 <= page < self.pool.touched for page in held)
            and (self.table[slot, : len(held)].tolist() == held)
        )

    def adopt(self, slot: int, pages: list[int]) -> None:
        """Share these pages, instead of what the sequence had."""
        for page in pages:
            self.pool.share(page)
        self.cut(slot, 0)
        for i, page in enumerate(pages):
            self._put(slot, i, page)

    # --- moving what is there ---
    def own(self, slot: int, start: int) -> None:
        """From position `start` on nobody else has the pages of the sequence: to be called before they are changed."""
        for i in range(start // PAGE, len(self._pages[slot])):
            page = self._pages[slot][i]
            if self.pool.owners(page) > 1:
                self._put(slot, i, self._copied(page))

    def remove(self, slot: int, start: int, end: int, n: int) -> None:
        """Forget positions start..end of n; what follows moves down, as it is. Nobody else may own the pages."""
        self.move_down(slot, start, end, n)
        self.cut(slot, n - (end - start))

    def move_down(self, slot: int, start: int, end: int, n: int) -> None:
        """Positions end..n are to begin at `start`."""
        for s in self.pairs:
            for view in self._views(s).values():
                # ascending, so that nothing is overwritten before it was read
                for first in range(end, n, MOVED_AT_ONCE):
                    cells = np.arange(first, min(n, first + MOVED_AT_ONCE))
                    view[self._at(slot, cells - (end - start))] = view[self._at(slot, cells)]

    def turn(self, slot: int, start: int, deltas: npt.NDArray[np.int64]) -> None:
        """Move the keys from position `start` on by `deltas` positions. Nobody else may own the pages."""
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
        """Where positions lie in the arrays of `_views`."""
        return self.table[slot, cells // PAGE], cells % PAGE // K_LANES, cells % K_LANES

    def _put(self, slot: int, i: int, page: int) -> None:
        held = self._pages[slot]
        held[i : i + 1] = [page]
        self.table[slot, i] = page

    def _copied(self, page: int) -> int:
        """A copy of a page, which loses an owner."""
        new = self.pool.take()
        self.copy_page(page, new)
        self.pool.drop(page)
        return new

    def copy_page(self, source: int, target: int) -> None:
        for stored in (*self.k.values(), *self.v.values(), *self.rows.values()):
            stored[target] = stored[source]

    # --- as arrays without padding ---
    def layout(self, end: int, start: int = 0) -> ArrayLayout:
        """What `export` gives of positions start..end: keys [n, n_kv, d_head] and, unless they are parts of
        keys, values [n, n_kv, d_value] as f32, f16 or i8, for q8_0 scales f16 [n, n_kv, group] too; of rows [n, n_head,
        n values] those that are complete."""
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
        """(name, array) of what every layer has of positions start..end, as it is kept in `pages`.

        `pages` begins with the one that holds `start`.
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
        """Inverse of `export`; dtypes and shapes have been checked. The rest of the pages stays as it is.

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
        """Random keys and values for n positions, every 16 the same: for measuring, where values do not matter."""
        self.cut(slot, 0)
        self.extend(slot, 0, n)
        self.fill_pages(self._pages[slot], rng)

    def fill_pages(self, pages: list[int], rng: np.random.Generator) -> None:
        """The same for all of these."""
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
    """Values as they are kept, or their scales."""
    some = rng.standard_normal(shape)
    if name.endswith(".scale"):
        some = np.abs(some) / 64
    elif dtype == np.int8:
        some = np.clip(np.rint(some * 40), -127, 127)
    return some.astype(dtype)
