"""Pictures by their tokens, and what they refuse."""

import gc

import numpy as np
import pytest

from hybrid.infer.engine.pictures import Picture, Pictures, UnknownPictureError
from hybrid.quant.ggml.errors import UsageError


def picture(n: int = 6, seed: int = 0, **more: object) -> Picture:
    rows = np.random.default_rng(seed).standard_normal((n, 5)).astype(np.float32)
    return Picture(rows, (2, n // 2), **more)  # type: ignore[arg-type]


def test_rows_and_names_tell_pictures_apart() -> None:
    one, same, other = picture(), picture(), picture(seed=1)
    assert one.ids == same.ids != other.ids and len(one.ids) == 6
    assert picture(name=b"x").ids == picture(seed=1, name=b"x").ids != picture(name=b"y").ids
    more = picture(added=(np.ones((6, 5), np.float32),))
    assert more.ids != one.ids != picture(added=(np.zeros((6, 5), np.float32),)).ids
    assert more.nbytes == 2 * one.nbytes == 240
    assert Picture(one.rows, (1, 6)).ids != one.ids


def test_bad_shapes() -> None:
    rows = np.zeros((6, 5), np.float32)
    for wrong, grid in ((rows, (2, 2)), (rows[0], (1, 6)), (rows[:0], (0, 0))):
        with pytest.raises(UsageError, match="are no picture of"):
            Picture(wrong, grid)
    with pytest.raises(UsageError, match=r"\[\(5, 5\)\] beside \(6, 5\)"):
        Picture(rows, (2, 3), added=(rows[:5],))


def test_pictures_are_found_by_their_tokens() -> None:
    known, one, other = Pictures(), picture(), picture(seed=1)
    known.add(one, other)
    text = [4, *one.ids, 5, 6, *other.ids]
    found = known.shown([], text)
    assert [(s.at, s.picture, s.first, s.n) for s in found] == [(1, one, 0, 6), (9, other, 0, 6)]
    (rest,) = known.shown(text[:4], text[4:8])
    assert (rest.at, rest.picture, rest.first, rest.n) == (0, one, 3, 3)
    (part,) = known.shown([], text[:3])
    assert (part.at, part.picture, part.first, part.n) == (1, one, 0, 2)
    assert known.shown([], [1, 2]) == []


def test_pictures_that_nobody_holds_are_unknown() -> None:
    known, one = Pictures(), picture()
    known.add(one)
    ids = one.ids
    assert known.shown([], ids)
    del one
    gc.collect()
    with pytest.raises(UnknownPictureError, match=f"token {ids[0]} is outside"):
        known.shown([], ids)
    with pytest.raises(UnknownPictureError):
        known.shown([], [-1, 3])
    with pytest.raises(UnknownPictureError):
        known.shown([3, 4], ids[2:])
