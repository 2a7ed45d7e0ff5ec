"""Paths through pieces of texts on disk: where they lead, which are worth least, which lead nowhere."""

from itertools import pairwise

import numpy as np
import pytest

from hybrid.infer.memory.store_file import LONGEST_PIECE, PIECE, STATE, FileHeader, TextDigest
from hybrid.infer.memory.store_index import AGE_SECONDS, StoreIndex, worth

KEY = b"k" * 16
NONE = np.zeros(0, np.int32)


def text(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 1000, n).astype(np.int32)


def add(index: StoreIndex, ids: np.ndarray, states: tuple[int, ...] = (), used: float = 0.0) -> list[int]:
    """Add what `missing` asks for, and states after the given numbers of tokens; return the cuts."""
    written: list[int] = []
    for end in (*states, len(ids)):
        cuts, _ = index.missing(ids[:end])
        digest = TextDigest(KEY, ids)
        after = {n: digest.at(n) for n in cuts}
        for a, b in pairwise(cuts):
            index.add(FileHeader(PIECE, after[a], after[b], a, b, ids[a:b], nbytes=10 * (b - a), used=used))
        written += cuts
        if end in states:
            last = TextDigest(KEY, ids).at(end)
            index.add(FileHeader(STATE, last, last, end, end, NONE, boundary=end == states[-1], nbytes=7, used=used))
    return sorted(set(written))


@pytest.fixture
def index() -> StoreIndex:
    return StoreIndex(KEY, recurrent=True)


def test_pieces_end_at_checkpoints_and_at_fixed_places(index: StoreIndex) -> None:
    ids = text(1300)
    assert add(index, ids, (600,)) == [0, 512, 600, 1024, 1300]
    assert index.missing(ids)[0] == [] and len(index.missing(ids)[1]) == 4
    longer = np.concatenate([ids, text(50, 1)])
    assert index.missing(longer)[0] == [1300, 1350]
    assert index.missing(np.concatenate([ids[:700], text(50, 2)]))[0] == [600, 750], "the piece up to 1024 is another's"
    assert index.missing(text(LONGEST_PIECE, 3))[0] == [0, LONGEST_PIECE]
    assert index.nbytes == sum(header.size for header in index.headers())


def test_the_pieces_of_an_owner_are_nobody_elses(index: StoreIndex) -> None:
    ids, mine = text(600), b"m" * 16
    for owner in (mine, b""):
        digest = TextDigest(KEY, ids, owner)
        before, after = digest.at(0), digest.at(600)
        assert index.missing(ids, owner)[0] == [0, 512, 600]
        index.add(FileHeader(PIECE, before, after, 0, 600, ids, nbytes=10))
        index.add(FileHeader(STATE, after, after, 600, 600, NONE, boundary=True, nbytes=7))
        longer = np.concatenate([ids, text(5, 1)])
        assert index.find(longer, b"o" * 16) is None
        way = index.find(longer, owner)
        assert way is not None and way.position == 600
    assert not index.useless(), "whose they are is not known at the start"
    assert len(index.take_out_text(ids, onward=False, owner=mine)) == 2
    assert index.find(longer, mine) is None and index.find(longer) is not None


def test_the_last_state_that_a_text_can_go_on_from(index: StoreIndex) -> None:
    ids = text(1300)
    add(index, ids, (600, 1300))
    assert index.find(ids[:600]) is None, "no logits: a token must be left"
    for n, want in ((601, 600), (1299, 600), (1300, 600)):
        way = index.find(ids[:n])
        assert way is not None and way.position == want and way.pieces[-1].end == want
    way = index.find(np.concatenate([ids, ids[:1]]))
    assert way is not None and way.position == 1300 and way.state is not None
    assert [(p.start, p.end) for p in way.pieces] == [(0, 512), (512, 600), (600, 1024), (1024, 1300)]
    assert index.find(text(900, 5)) is None


def test_keys_and_values_alone_can_be_cut_anywhere() -> None:
    index = StoreIndex(KEY, recurrent=False)
    ids = text(1300)
    add(index, ids)
    way = index.find(np.concatenate([ids[:700], text(9, 2)]))
    assert way is not None and (way.position, way.pieces[-1].end) == (700, 1024)
    assert index.missing(ids[:700])[0] == [], "a longer piece has them"


def test_what_leads_nowhere(index: StoreIndex) -> None:
    ids = text(1300)
    add(index, ids, (600,))
    tail = {f"{TextDigest(KEY, ids).at(n).hex()}-{start}.kv" for start, n in ((600, 1024), (1024, 1300))}
    assert set(index.useless()) == tail
    assert index.useless(TextDigest(KEY, ids).at(1300)) == [], "a state will follow"
    first = next(h for h in index.headers() if h.kind == PIECE and h.start == 0)
    index.remove(first.name)
    assert len(index.useless()) == len(index) == 4, "all is behind the gap"


def test_what_is_worth_least_goes_with_its_pieces(index: StoreIndex) -> None:
    old, new = text(900, 1), text(900, 2)
    add(index, old, (512, 900), used=0.0)
    add(index, new, (512, 900), used=100 * AGE_SECONDS)
    ranked = index.least_worth(100 * AGE_SECONDS)
    position = {h.name: (h.end, h.used) for h in index.headers()}
    assert [position[name] for _, name in ranked] == [(512, 0.0), (900, 0.0), (512, 6000.0), (900, 6000.0)]
    assert ranked[-1][0] == worth(388, True, 0.0) == 16 * 388
    assert worth(100, False, AGE_SECONDS) == 50
    assert index.take_out(ranked[0][1], b"") == [ranked[0][1]], "its pieces lead on"
    assert len(index.take_out(ranked[1][1], b"")) == 3
    assert index.find(np.append(old, 1)) is None and index.find(np.append(new, 1)) is not None
    last = TextDigest(KEY, new).at(900)
    assert index.take_out(f"{last.hex()}.state", last) == [f"{last.hex()}.state"], "something follows it"


@pytest.mark.parametrize("onward", [False, True])
def test_a_text_is_taken_out(index: StoreIndex, onward: bool) -> None:
    stem = text(600)
    one, two = np.concatenate([stem, text(300, 1)]), np.concatenate([stem, text(300, 2)])
    for ids in (one, two):
        add(index, ids, (600, 900))
    left = len(index)
    index.take_out_text(stem, onward=onward)
    assert len(index) == (0 if onward else left), "others go on from it"
    if not onward:
        index.take_out_text(one, onward=False)
        assert index.find(np.append(one, 1)).position == 600 and index.find(np.append(two, 1)).position == 900  # type: ignore[union-attr]
        index.take_out_text(two[:700], onward=True)
        assert len(index) == 0


def test_pieces_that_lie_about_their_place_are_not_followed(index: StoreIndex) -> None:
    ids = text(900)
    add(index, ids, (900,))
    root = index.root()
    index.add(FileHeader(PIECE, root, root, 5, 9, ids[5:9], nbytes=1))  # a circle
    end = TextDigest(KEY, ids).at(900)
    index.add(FileHeader(PIECE, end, root, 900, 910, text(10), nbytes=1))
    way = index.find(np.append(ids, 1))
    assert way is not None and way.position == 900
    assert len(index.useless()) >= 1 and index.least_worth(0.0)
