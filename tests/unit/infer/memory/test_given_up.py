"""Texts whose memory was given up are recognized, within bounded memory."""

import numpy as np

from hybrid.infer.memory.given_up import SPACING, GivenUp


def text(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 50, n).astype(np.int32)


def test_the_last_place_of_a_text() -> None:
    places = GivenUp()
    ids = text(2000)
    assert places.last(ids, 0) == 0
    for n in (300, 1200, 700):
        places.add(ids[:n])
    assert places.last(ids, 0) == places.last(ids, 700) == 1200
    assert places.last(ids, 1200) == 0 and places.last(ids[:1199], 0) == 700 and places.last(ids[:299], 0) == 0
    other = ids.copy()
    other[500] += 1
    assert places.last(other, 0) == 300
    assert places.last(text(2000, 1), 0) == 0
    places.clear()
    assert places.last(ids, 0) == 0


def test_a_text_that_went_as_a_whole() -> None:
    places, ids = GivenUp(), text(3 * SPACING + 100)
    places.add(ids, 0)
    for n in (SPACING - 1, SPACING, 2 * SPACING + 5, len(ids) - 1, len(ids)):
        want = n if n == len(ids) else n // SPACING * SPACING
        assert places.last(ids[:n], 0) == want
        assert places.last(np.concatenate([ids[:n], [99]]).astype(np.int32), 0) == want


def test_the_oldest_places_go() -> None:
    places = GivenUp(3)
    texts = [text(20, i) for i in range(5)]
    for ids in texts:
        places.add(ids)
    assert [places.last(ids, 0) for ids in texts] == [0, 0, 20, 20, 20]
    places.add(text(10 * SPACING, 9), 0)
    assert places.last(text(10 * SPACING, 9), 0) == 10 * SPACING
    places.add(text(0))
    assert places.last(text(0), 0) == 0
