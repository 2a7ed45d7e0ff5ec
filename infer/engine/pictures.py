"""Pictures as the model reads them: runs of tokens with rows in place of embeddings."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import NamedTuple
from weakref import WeakSet

import numpy as np
import numpy.typing as npt

from hybrid.quant.ggml.errors import UsageError

from ..memory.picture_tokens import MOST_SPAN, is_first, picture_tokens, runs

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Picture:
    """A run of tokens of a picture: a whole picture, or one of the tiles that it is cut into.

    rows    f32 [n, n_embd], in place of the tokens' embeddings
    grid    (rows, columns) of tokens, in this order
    added   more rows of this shape, each to be added to the residual stream before one of the model's blocks:
            `Family.picture_blocks`
    name    what tells it from all other pictures: a digest of its pixels, the tower and the tower's settings; without a
            name, a digest of the rows
    """

    rows: Floats
    grid: tuple[int, int]
    added: Sequence[Floats] = ()
    name: bytes = b""

    def __post_init__(self) -> None:
        n, (height, width) = len(self.rows), self.grid
        if self.rows.ndim != 2 or not n or height * width != n or max(self.grid) > MOST_SPAN:
            raise UsageError(f"rows of the shape {self.rows.shape} are no picture of {height} x {width} tokens.")
        if any(rows.shape != self.rows.shape for rows in self.added):
            raise UsageError(f"rows of the shapes {[rows.shape for rows in self.added]} beside {self.rows.shape}.")
        arrays = (self.rows, *self.added)
        made = self.name or b"".join(hashlib.sha256(np.ascontiguousarray(a).tobytes()).digest() for a in arrays)
        digest = hashlib.sha256(repr((made, self.grid, len(self.added))).encode()).digest()
        object.__setattr__(self, "ids", picture_tokens(digest, n, max(self.grid)))

    ids: list[int] = field(init=False)

    @property
    def nbytes(self) -> int:
        """Bytes of its rows."""
        return self.rows.nbytes + sum(rows.nbytes for rows in self.added)


class Shown(NamedTuple):
    """Tokens of a picture in a segment: `n` from the picture's token `first` on, at the segment's token `at`."""

    at: int
    picture: Picture
    first: int
    n: int


class UnknownPictureError(UsageError):
    """A text has a picture whose rows are not at hand."""


class Pictures:
    """The pictures that somebody holds, by their tokens. It does not hold them itself. Any thread may use it."""

    def __init__(self) -> None:
        self._known: dict[int, WeakSet[Picture]] = {}  # by their first token
        self._lock = Lock()

    def add(self, *pictures: Picture) -> None:
        """Make pictures known for as long as somebody holds them."""
        with self._lock:
            for first in [first for first, held in self._known.items() if not held]:
                del self._known[first]
            for picture in pictures:
                self._known.setdefault(picture.ids[0], WeakSet()).add(picture)

    def shown(self, before: Sequence[int], ids: Sequence[int]) -> list[Shown]:
        """The pictures of tokens `ids`, which follow the tokens `before`. Raises UnknownPictureError."""
        found = []
        for begin, end in runs(np.asarray(ids, np.int64)):
            own, first = list(ids[begin:end]), 0
            if begin == 0 and not is_first(own[0]):
                first = next((k for k in range(1, len(before) + 1) if is_first(before[-k])), 0)
                own = [*before[len(before) - first :], *own]
            found.append(Shown(begin, self._find(own), first, end - begin))
        return found

    def _find(self, ids: list[int]) -> Picture:
        """The picture that begins with these tokens."""
        with self._lock:
            held = list(self._known.get(ids[0], ()))
        for picture in held:
            if picture.ids[: len(ids)] == ids:
                return picture
        raise UnknownPictureError(
            f"token {ids[0]} is outside this model's vocabulary, and of no picture that is at hand. Give the picture "
            "again."
        )
