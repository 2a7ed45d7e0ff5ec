"""Passes with pictures: programs of their own, made when the first picture is read."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from ..kernels.attention.rope_axes import N_AXES
from ..memory import Move
from ..program.builder import Batch, PictureBatch, Program, aligned_empty
from .network import FixedRows
from .pictures import Shown
from .ubatch import Segment


class PicturePasses:
    """What an engine needs for passes with pictures, in addition to the control block of its other passes, `batch`.

    blocks  before which each of the rows in `Picture.added` is added
    """

    def __init__(self, batch: Batch, blocks: Sequence[int], n_embd: int, n_ubatch: int) -> None:
        self._given, self._last, self._index = (aligned_empty(8 * n_ubatch).view(np.int64) for _ in range(3))
        self._positions = aligned_empty(8 * N_AXES * n_ubatch).view(np.int64).reshape(N_AXES, n_ubatch)
        self._index[:] = np.arange(n_ubatch)
        self._rows = FixedRows(n_embd, n_ubatch)
        self._added = [FixedRows(n_embd, n_ubatch) for _ in blocks]
        self.programs: dict[tuple[int, bool], Program] = {}  # by capacity, and whether tokens have adapters
        pictures = PictureBatch(
            self._given.ctypes.data, self._rows.rows,
            {block: fixed.rows for block, fixed in zip(blocks, self._added, strict=True)},
            self._positions.ctypes.data, self._positions.strides[0], self._index.ctypes.data,
        )  # fmt: skip
        self.batch = replace(batch, last=self._last.ctypes.data, pictures=pictures)

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays, without the programs."""
        numbers = sum(each.nbytes for each in (self._given, self._last, self._index, self._positions))
        return numbers + sum(fixed.nbytes for fixed in (self._rows, *self._added))

    def fill(self, segments: Sequence[Segment], moves: Sequence[Move]) -> None:
        """Write what `Control.fill` does not."""
        first = 0
        for segment, move in zip(segments, moves, strict=True):
            n = len(segment.tokens)
            part = slice(first, first + n)
            self._given[part] = 0
            self._last[part] = np.arange(move.past, move.past + n)
            self._positions[:, part] = (
                np.arange(move.position, move.position + n) if move.places is None else move.places
            )
            for shown in segment.pictures:
                self._show(shown, first, move)
            first += n

    def copied(self, n: int) -> dict[str, np.ndarray]:
        """A copy of the arrays that `fill` wrote for n tokens, with the given rows only."""
        given = self._given[:n].copy()
        chosen = given != 0
        rows = np.stack([fixed.values[:n][chosen] for fixed in (self._rows, *self._added)])
        return {
            "given": given,
            "last": self._last[:n].copy(),
            "positions": self._positions[:, :n].copy(),
            "rows": rows,
        }

    def put(self, copied: Mapping[str, np.ndarray]) -> None:
        """Inverse of `copied`."""
        given = copied["given"]
        n, chosen = len(given), given != 0
        self._given[:n], self._last[:n], self._positions[:, :n] = given, copied["last"], copied["positions"]
        for fixed, rows in zip((self._rows, *self._added), copied["rows"], strict=True):
            fixed.values[:n][chosen] = rows

    def _show(self, shown: Shown, first: int, move: Move) -> None:
        """Write the rows and positions of tokens of a picture. first: number of the segment's first token."""
        picture, n = shown.picture, shown.n
        part, taken = slice(first + shown.at, first + shown.at + n), slice(shown.first, shown.first + n)
        self._given[part] = 1
        self._last[part] = move.past + shown.at + n - 1
        self._rows.values[part] = picture.rows[taken]
        for fixed, rows in zip(self._added, picture.added, strict=True):
            fixed.values[part] = rows[taken]
        if move.places is not None:
            height, width = picture.grid
            is_end = taken.stop == len(picture.ids)
            start = move.places[shown.at + n - 1] - is_end * (max(height, width) - 1)
            index = np.arange(taken.start, taken.stop)
            self._positions[:, part] = start + np.stack([np.zeros_like(index), index // width, index % width])
