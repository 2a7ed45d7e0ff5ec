"""The tokens of pictures: negative ids, made of a digest of what the picture shows to the model.

Two pictures have different ids, so a text is known by its ids alone, also where it has pictures: to the prompt cache,
state files and branches. The ids say where a run begins and ends, and how many positions it takes:

    ~id        bit 30: first of its run    bit 29: last of its run    bits 28..0: of the digest
    last       bits 28..16 instead: the positions that the run takes, where positions have three axes

With three axes (M-RoPE) all tokens of a run have the position of the first on the axis of time, and the text goes on
`span` positions later. In the list of a sequence's positions the last token of a run has the last of its positions, so
that the next token always follows the last one.
"""

from collections.abc import Iterator, Sequence
from hashlib import shake_256

import numpy as np
import numpy.typing as npt

from .positions import Places

FIRST, LAST = 1 << 30, 1 << 29
MOST_SPAN = (1 << 13) - 1
_SPAN_SHIFT = 16

Ids = npt.NDArray[np.int64]


def picture_tokens(digest: bytes, n: int, span: int) -> list[int]:
    """The ids of a run of n tokens, which takes `span` positions where positions have three axes."""
    assert n > 0 and 0 < span <= min(n, MOST_SPAN)
    values = np.frombuffer(shake_256(digest).digest(4 * n), "<u4").astype(np.int64) & (LAST - 1)
    values[-1] = LAST | span << _SPAN_SHIFT | values[-1] & ((1 << _SPAN_SHIFT) - 1)
    values[0] |= FIRST
    ids: list[int] = (~values).tolist()
    return ids


def has_pictures(ids: Sequence[int] | npt.NDArray[np.integer]) -> bool:
    """Whether any of the tokens belongs to a picture."""
    return len(ids) > 0 and int(np.asarray(ids).min()) < 0


def are_known(ids: npt.NDArray[np.integer], n_vocab: int) -> bool:
    """Whether all tokens are of the vocabulary or of pictures."""
    return not len(ids) or int(ids.max()) < n_vocab


def is_first(token: int) -> bool:
    return token < 0 and bool(~token & FIRST)


def is_inside(ids: Sequence[int] | npt.NDArray[np.integer], n: int) -> bool:
    """Whether a picture lies on both sides of the cut before token n."""
    return 0 < n < len(ids) and ids[n] < 0 and not is_first(int(ids[n]))


def outside(ids: Sequence[int] | npt.NDArray[np.integer], n: int) -> int:
    """The last cut at or before token n that no picture lies on both sides of."""
    while is_inside(ids, n):
        n -= 1
    return n


def whole(ids: Sequence[int], first: int, end: int) -> tuple[int, int]:
    """Tokens first..end, without a picture that lies before `first` in part, and with all of one that begins there."""
    while is_inside(ids, first):
        first += 1
    while is_inside(ids, end):
        end += 1
    return first, max(first, end)


def runs(ids: Ids) -> Iterator[tuple[int, int]]:
    """(first token, token after the last) of every run; a run may be cut at an end of `ids`."""
    begin = -1
    for i in np.flatnonzero(ids < 0).tolist():
        begin = i if begin < 0 else begin
        if ~int(ids[i]) & LAST or i + 1 == len(ids) or ids[i + 1] >= 0 or is_first(int(ids[i + 1])):
            yield begin, i + 1
            begin = -1


def places_of(ids: Sequence[int] | npt.NDArray[np.integer], at: int, before: int = 0) -> Places:
    """Positions of tokens that begin at position `at`, on the axis of time; the last of a run has its last position.

    before: the position of the token before, on which the rest of a run that was cut goes on.
    """
    given = np.asarray(ids, np.int64)
    places, done = np.empty(len(given), np.int64), 0
    for begin, end in runs(given):
        places[done:begin] = np.arange(at, at + begin - done)
        start = at + begin - done if begin or is_first(int(given[0])) else before
        places[begin:end] = start
        last = ~int(given[end - 1])
        if last & LAST:
            places[end - 1] += (last >> _SPAN_SHIFT & MOST_SPAN) - 1
        at, done = int(places[end - 1]) + 1, end
    places[done:] = np.arange(at, at + len(given) - done)
    return places
