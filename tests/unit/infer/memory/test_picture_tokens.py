"""Tokens of pictures: told apart by their ids, which say where a run begins, ends, and how many positions it takes."""

import numpy as np

from hybrid.infer.memory.picture_tokens import (
    are_known,
    has_pictures,
    is_first,
    is_inside,
    outside,
    picture_tokens,
    places_of,
    runs,
    whole,
)
from hybrid.infer.memory.positions import Positions


def slow_places(ids: list[int], spans: dict[int, int]) -> list[int]:
    """Token by token. spans: by the id of the last token of a run."""
    places, at, start = [], 0, 0
    for token in ids:
        if token >= 0:
            places.append(at)
            at += 1
        else:
            start = at if is_first(token) else start
            places.append(start + spans.get(token, 1) - 1)
            at = start + spans.get(token, 1)
    return places


def test_ids_differ_by_digest_and_place() -> None:
    one, same, other = picture_tokens(b"a", 40, 9), picture_tokens(b"a", 40, 9), picture_tokens(b"b", 40, 9)
    assert one == same and not set(one) & set(other)
    assert len(set(one)) == 40 and all(-(2**31) <= token < 0 for token in one)
    assert [is_first(token) for token in one] == [True] + [False] * 39
    assert picture_tokens(b"a", 40, 8)[:-1] == one[:-1] and picture_tokens(b"a", 40, 8)[-1] != one[-1]


def test_known_tokens() -> None:
    picture = picture_tokens(b"x", 3, 2)
    assert has_pictures([5, *picture]) and not has_pictures([5, 0]) and not has_pictures([])
    assert are_known(np.array([*picture, 6]), 7) and not are_known(np.array([*picture, 7]), 7)
    assert are_known(np.zeros(0, np.int32), 7)


def test_cuts_within_a_picture() -> None:
    ids = [1, *picture_tokens(b"x", 3, 2), *picture_tokens(b"y", 1, 1), *picture_tokens(b"z", 2, 2), 4]
    assert [is_inside(ids, n) for n in range(len(ids) + 1)] == [
        False,
        False,
        True,
        True,
        *[False] * 2,
        True,
        False,
        False,
    ]
    assert [outside(ids, n) for n in range(len(ids) + 1)] == [0, 1, 1, 1, 4, 5, 5, 7, 8]
    assert whole(ids, 2, 3) == (4, 4) and whole(ids, 1, 2) == (1, 4) and whole(ids, 0, 6) == (0, 7)
    assert list(runs(np.array(ids))) == [(1, 4), (4, 5), (5, 7)]
    assert list(runs(np.array(ids[2:6]))) == [(0, 2), (2, 3), (3, 4)], "cut at both ends"


def test_places_are_those_of_a_slow_walk_for_any_split() -> None:
    rng = np.random.default_rng(0)
    for _ in range(60):
        ids: list[int] = []
        spans = {}
        for i in range(int(rng.integers(1, 6))):
            ids += rng.integers(0, 100, rng.integers(0, 4)).tolist()
            n = int(rng.integers(1, 9))
            span = int(rng.integers(1, n + 1))
            ids += (run := picture_tokens(bytes([i]), n, span))
            spans[run[-1]] = span
        want = slow_places(ids, spans)
        assert places_of(ids, 0).tolist() == want
        held, cut = Positions(), int(rng.integers(0, len(ids) + 1))
        first = places_of(ids[:cut], 0)
        held.set(first)
        rest = places_of(ids[cut:], held.at(cut), held.at(cut - 1) if cut else 0)
        assert [*first.tolist(), *rest.tolist()] == want
        held.set(np.array(want))
        assert held.at(len(ids)) == want[-1] + 1
        assert (np.diff(want) >= 0).all()
