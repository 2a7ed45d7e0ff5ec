"""DRY against a search of all repetitions, and sequence breakers in a real vocabulary."""

from hypothesis import given
from hypothesis import strategies as st

from hybrid.infer.answers.sampling.dry import breakers_of, penalties, repeats


def search(last: list[int], allowed: int, most: int) -> dict[int, int]:
    """For each token that follows an earlier copy of a suffix of the text: the length of the longest such suffix."""
    found: dict[int, int] = {}
    for at in range(1, len(last)):
        lengths = [n for n in range(allowed, most + 1) if at >= n and last[at - n : at] == last[len(last) - n :]]
        lengths = [n for n in lengths if n or allowed == 0]
        if lengths:
            found[last[at]] = max(found.get(last[at], 0), *lengths)
    return found


@given(st.lists(st.integers(0, 3), max_size=30), st.integers(0, 4), st.sets(st.integers(0, 3), max_size=2))
def test_repeats_are_those_of_a_search(last: list[int], allowed: int, breakers: set[int]) -> None:
    since = next((back for back, token in enumerate(reversed(last)) if token in breakers), len(last))
    want = search(last, allowed, since) if len(last) > allowed and since >= allowed else {}
    assert repeats(last, dict.fromkeys(breakers, ((),)), allowed) == want


def test_a_breaker_of_several_tokens_counts_when_it_is_whole() -> None:
    said = [1, 2, 3, 9, 8, 1, 2, 3]
    assert repeats(said, {}, 2) == {9: 3}
    assert repeats([*said, 9], {9: ((8,),)}, 2) == {8: 4}, "9 without 8 breaks nothing"
    assert repeats(said, {9: ((8,),)}, 2) == {9: 3}
    assert repeats([1, 2, 9, 8, 1, 2], {9: ((8,),)}, 2) == {9: 2}
    assert repeats([9, 8, 1, 9, 8, 1], {9: ((8,),)}, 2) == {}, "only the 1 came after the breaker"
    assert repeats([9, 8, 1, 9, 8, 1], {9: ((8,),)}, 1) == {9: 1}


def test_penalties_stay_numbers() -> None:
    assert penalties({5: 3, 6: 2}, 0.8, 1.75, 2) == {5: 0.8 * 1.75, 6: 0.8}
    assert penalties({5: 100_000}, 1.0, 2.0, 2)[5] < 3.4e38
    assert penalties({5: 100_000}, 2.0, 1.0, 2) == {5: 2.0}


class Words:
    """A vocabulary that encodes by longest match."""

    PIECES = [bytes([i]) for i in range(128)] + [b"ab", b"ab:", b" ab:c", b"za", b"\n\n", b"b:", b": ", b"aab"]
    n_vocab = len(PIECES)

    def piece(self, token: int) -> bytes:
        return self.PIECES[token]

    def encode(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        assert not add_special and not parse_special
        raw, ids = text.encode(), []
        while raw:
            ids.append(max((i for i in range(self.n_vocab) if raw.startswith(self.PIECES[i])), key=self._length))
            raw = raw[len(self.PIECES[ids[-1]]) :]
        return ids

    def _length(self, token: int) -> int:
        return len(self.PIECES[token])


def test_breakers_of_a_vocabulary() -> None:
    words = Words()
    heads = breakers_of(words, ["\n", "ab:"])
    named = {
        words.piece(token): {tuple(words.piece(i) for i in tail) for tail in tails} for token, tails in heads.items()
    }
    assert named == {
        b"\n": {()},
        b"\n\n": {()},
        b"ab:": {()},
        b" ab:c": {()},
        b"a": {(b"b:",)},
        b"za": {(b"b:",)},
        b"ab": {(b":",)},
        b"aab": {(b":",)},
    }
    assert breakers_of(words, []) == {}
