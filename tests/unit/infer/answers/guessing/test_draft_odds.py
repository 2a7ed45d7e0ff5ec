"""The expected gain of a draft's guesses."""

import pytest

from hybrid.infer.answers.guessing.draft_odds import HOPED, Odds, PassTimes, best_rate, may_pay
from hybrid.infer.guessers import Value

CHEAP = Value(1, 1.0, lambda n: 1 + 0.05 * n)
DEAR = Value(1, 1.0, lambda n: 1 + 1.0 * n)


def test_as_many_guesses_as_pay() -> None:
    chances = [0.7**n for n in range(1, 9)]
    rate, n = best_rate(chances, CHEAP, 0.1)
    by_hand = [(1 + sum(chances[:n])) / (1.1 + 0.05 * n) for n in range(9)]
    assert (rate, n) == (pytest.approx(max(by_hand)), by_hand.index(max(by_hand))) and n > 3
    assert best_rate(chances, DEAR, 0.1) == (pytest.approx(1 / 1.1), 0)
    assert best_rate([], CHEAP, 0.0) == (1.0, 0)
    # of four answers in a step, a guess saves a fourth of it
    assert best_rate([0.9] * 4, Value(4, 1.0, lambda n: 1 + 0.2 * n), 0.0)[0] == pytest.approx(7.6 / 4 / 1.8)


def test_whether_it_may_pay() -> None:
    assert may_pay(0.8, [8], CHEAP, 0.0, [0.1])
    assert not may_pay(0.8, [8], DEAR, 0.0, [0.1])
    assert not may_pay(0.8, [8], CHEAP, 0.0, [0.9]), "the draft is nearly as slow as the model"
    assert not may_pay(0.1, [8], CHEAP, 0.0, [0.1]), "it is hardly ever right"
    assert not may_pay(0.8, [8], CHEAP, 9.0, [0.1]), "it has too much to read"


def test_what_is_learned_of_a_probability() -> None:
    odds = Odds()
    sure, unsure = odds.kind(0.99), odds.kind(0.3)
    assert odds.chance(sure) > 0.9 > odds.chance(unsure)
    for _ in range(60):
        odds.seen(sure, right=False)
    assert odds.chance(sure) < 0.1 and odds.mean < 0.1 and odds.chance(unsure) == 0.3
    for _ in range(2000):
        odds.rested()
    assert odds.mean == pytest.approx(HOPED, abs=0.01), "it is tried again some time"


def test_passes_that_were_never_measured() -> None:
    times = PassTimes()
    assert times.seconds(1) is None
    for n, seconds in ((2, 2.0), (4, 3.0)):
        times.timed(n, seconds)
    assert [times.seconds(n) for n in (1, 2, 3, 4)] == [2.0, 2.0, 2.5, 3.0]
    assert times.seconds(8) == pytest.approx(3.0 * 1.3)
    times.read(100, 1.0)
    assert times.per_token == 0.01
