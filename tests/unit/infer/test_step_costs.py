"""How many guesses a step of a batch carries, given the costs of steps."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from pairwise import in_turn, mostly_long

from hybrid.infer.answers.batch.guesses import IDLE, LOOK, LOOK_SHARE, MOST_UNSEEN, TOO_SHORT, AnswerText, BatchGuesses
from hybrid.infer.guessers import AT_MOST, AT_START, SHARE
from hybrid.infer.step_costs import DEAR, FORGET, LEAST_GAIN, REACH, UNKNOWN, StepCosts

Cost = Callable[[int], float]
COSTS: dict[str, Cost] = {
    "waits for weights": lambda n: 1 + 0.01 * n,
    "waits for arithmetic": lambda n: float(n),
    "small tiles": lambda n: 1 + 0.02 * n + 1.5 * (n > 8) + 1.5 * (n > 24),
    "nothing is shared": lambda n: 1.3 * n - 0.3,
}


def measured(cost: Cost, widths: Sequence[int], n_answers: int) -> StepCosts:
    costs = StepCosts()
    for n in widths:
        for _ in range(3):
            costs.timed(n_answers, n - n_answers, cost(n), "one program")
    costs.credit = AT_MOST
    return costs


def chances(likely: float, n: int) -> np.ndarray:
    return np.asarray(likely) ** np.arange(1, n + 1)


def test_widths_that_were_not_measured_lie_on_lines() -> None:
    costs = measured(lambda n: {4: 1.0, 6: 2.0, 8: 2.5}[n], (4, 6, 8), 4)
    assert costs.seconds(4, 6) == pytest.approx([1.5, 2.0, 2.25, 2.5, 2.875, 3.25])
    only = measured(lambda n: 1.0, (4,), 4)
    assert only.seconds(4, 2) == pytest.approx([1 + UNKNOWN / 4, 1 + 2 * UNKNOWN / 4])
    odd = measured(lambda n: {4: 1.0, 6: 0.5}[n], (4, 6), 4)
    assert odd.seconds(4, 2) == pytest.approx([1.0, 1.0]), "wider is never faster"


def test_so_many_guesses_as_pay() -> None:
    cheap = measured(COSTS["waits for weights"], (4, 5, 6, 8, 12, 16), 4)
    assert cheap.worth(4, chances(0.9, 8)) == 8
    assert cheap.worth(4, chances(0.05, 8)) == 0
    dear = measured(COSTS["waits for arithmetic"], (4, 5, 6, 8, 12, 16), 4)
    assert dear.worth(4, np.ones(12)) == 0 and not dear.may_pay(4, 12)
    steps = measured(COSTS["small tiles"], (4, 5, 6, 8, 9, 12, 16), 4)
    assert steps.worth(4, chances(0.99, 12)) == 4, "up to the next program"
    assert cheap.may_pay(4, 1) and not cheap.may_pay(4, 0) and not cheap.may_pay(7, 9), "never measured"
    narrow = measured(COSTS["waits for weights"], (4,), 4)
    assert narrow.worth(4, np.ones(12)) == REACH, "further when that is known"
    # beside prompts a guess costs a token of a prompt, and an answer a fourth of a step
    plain = COSTS["waits for weights"](4)
    assert cheap.worth(4, chances(0.5, 6), plain / 4 * 0.12 / DEAR) == 3
    assert cheap.may_pay(4, 1, plain / 5 / DEAR) and not cheap.may_pay(4, 99, plain / 3 / DEAR)
    assert LEAST_GAIN > 1


def test_the_first_run_of_a_program_does_not_count() -> None:
    costs = StepCosts()
    for program in ("narrow", "wide"):
        costs.timed(2, 0, 99.0, program)
    assert not costs.is_ready(2)
    for _ in range(2):
        costs.timed(2, 0, 1.0, "narrow")
    assert costs.is_ready(2) and costs.seconds(2, 1)[0] == 1 + UNKNOWN / 2


def test_what_was_slow_once_is_tried_again() -> None:
    """The machine was busy when the width was first measured."""
    costs = measured(COSTS["waits for weights"], (4,), 4)
    costs.timed(4, 2, 50.0, "one program")
    costs.credit = AT_MOST
    assert costs.worth(4, np.ones(2)) == 0
    for _ in range(FORGET + 128):
        costs.timed(4, 0, 1.0, "one program")
    assert costs.worth(4, np.ones(2)) == 2


def test_credit() -> None:
    costs = measured(COSTS["waits for weights"], (4, 8), 4)
    costs.credit = AT_START
    costs.timed(4, 0, 1.04, "one program")
    assert costs.credit == pytest.approx(AT_START + SHARE)
    costs.credit = AT_START
    costs.came_true(2, 4)
    assert costs.credit == AT_START + 0.5, "two of four answers are a token ahead"
    costs.timed(4, 4, 2 * 1.04, "one program")
    assert costs.credit == pytest.approx(AT_START - 0.5)
    costs.beside_prompts(4, 3, 1.04)
    assert costs.credit < 0 and not costs.may_pay(4, 4)


def cost_of_all(texts: list[list[int]], n_prompt: int, places: int, cost: Cost, *, guess: bool) -> float:
    """The cost of drawing the rest of all texts, `places` at a time."""
    guessing, total = BatchGuesses(StepCosts(), 32), 0.0
    drawn: list[list[int]] = [text[n_prompt : n_prompt + 1] for text in texts]
    known = [AnswerText(text[:n_prompt], new) for text, new in zip(texts, drawn, strict=True)]
    while running := [i for i, text in enumerate(texts) if n_prompt + len(drawn[i]) < len(text)][:places]:
        rooms = [(known[i], len(texts[i]) - n_prompt - len(drawn[i]) - 1) for i in running]
        guesses = guessing.guesses(rooms, len(running), 64) if guess else [[] for _ in running]
        n_guessed = sum(map(len, guesses))
        seconds = cost(len(running) + n_guessed)
        guessing.costs.timed(len(running), n_guessed, seconds, len(running) + n_guessed > 8)
        total += seconds
        for i, tokens in zip(running, guesses, strict=True):
            n, more = 0, texts[i][n_prompt + len(drawn[i]) :]
            while n < len(tokens) and tokens[n] == more[n]:
                n += 1
            drawn[i] += more[: n + 1]
            guessing.costs.came_true(n, len(running))
    return total


ANSWERS = [20, 8, 3, 1]


@pytest.mark.exhaustive
@pytest.mark.parametrize(("name", "n_answers"), list(mostly_long(in_turn(COSTS, ANSWERS), COSTS, ANSWERS)))
def test_guessing_never_costs_much(name: str, n_answers: int) -> None:
    """For any texts and any costs of steps."""
    rng, cost = np.random.default_rng(4), COSTS[name]
    page = rng.integers(0, 2000, 120).tolist()
    kinds = {
        "nothing repeats": lambda: rng.permutation(2000).tolist()[:600],
        "few tokens": lambda: rng.integers(0, 5, 600).tolist(),
        "pairs that lie": lambda: [t for _ in range(200) for t in (7, 8, int(rng.integers(0, 2000)))],
        "a page quoted": lambda: page + [t for i in range(40) for t in (*page[3 * i % 90 :][:9], int(rng.integers(9)))],
        "one page again and again": lambda: page * 5,
    }
    kinds["one of each"] = lambda: kinds[str(rng.choice(list(kinds)[:5]))]()
    for kind, make in kinds.items():
        texts = [make() for _ in range(2 * n_answers)]
        total, plain = (cost_of_all(texts, 120, n_answers, cost, guess=guess) for guess in (True, False))
        print(f"{name}, {n_answers} x {kind}: {total / plain:.2f}")
        assert total <= 1.015 * plain + 3 * AT_START * cost(n_answers), (kind, total, plain)
        if name == "waits for weights" and kind == "one page again and again":
            assert total < 0.7 * plain
        if name == "waits for arithmetic":
            assert total <= 1.01 * plain + AT_START * cost(n_answers)


@pytest.mark.parametrize(
    ("plain", "least"), [(1.0, 0), (LOOK / LOOK_SHARE / 4, 4), (TOO_SHORT, MOST_UNSEEN), (0.9 * TOO_SHORT, IDLE)]
)
def test_short_steps_are_seldom_looked_at(plain: float, least: int) -> None:
    """Python's search for a guess would take a noticeable part of a small model's step."""
    guessing = BatchGuesses(measured(lambda n: plain, (1, 2), 1), 32)
    text = AnswerText(list(range(20)), drawn := [])
    assert guessing.guesses([(text, 9)], 1, 64) == [[]]
    n = 0
    while guessing.rests():
        n += 1
    assert n == least and not guessing.rests()
    drawn += [3, 4, 5]
    if least == IDLE:
        assert guessing.guesses([(text, 9)], 1, 64) == [[]] and text.ids == [], "nobody has looked"
        return
    assert guessing.guesses([(text, 9)], 1, 64)[0][0] == 6 and not guessing.rests(), "after a guess always"


def test_gains_in_seconds_pay_for_programs() -> None:
    costs = measured(lambda n: 2.0 * (1.0 + 0.1 * (n > 1)), (1, 3), 1)
    costs.gained = 0.0
    costs.came_true(2, 1)
    costs.timed(1, 2, 2.2, "one program")
    assert costs.gained == pytest.approx(2 * 2.0 - 0.2)
    credit = costs.credit
    costs.invest(3.0)
    assert costs.gained == pytest.approx(0.8) and costs.credit == credit
    costs.unseen(10)
    assert costs.credit == pytest.approx(min(AT_MOST, credit + 10 * SHARE))


def test_answers_share_the_columns_by_their_chances() -> None:
    guessing = BatchGuesses(StepCosts(), 6)
    guessing.costs = measured(COSTS["waits for weights"], (2, 3, 4, 8, 12), 2)
    sure, unsure = AnswerText(list(range(30)) * 9, []), AnswerText([*range(30), *range(1000, 1004), *range(30)], [])
    first, second = guessing.guesses([(sure, 9), (unsure, 9)], 2, 64)
    assert len(first) > len(second) and len(first) + len(second) <= 6
    assert guessing.guesses([(sure, 2), (unsure, 0)], 2, 64) == [[0, 1], []]
    assert guessing.guesses([(sure, 9)], 2, 1) == [[0]] and guessing.guesses([(sure, 9)], 2, 0) == [[]]


def test_what_guesses_of_others_cost_and_are_worth() -> None:
    """A helper's guesses are judged by the same measurements, and charged to the helper."""
    costs = measured(COSTS["waits for weights"], (2, 3, 4, 8, 12), 2)
    value = costs.value(2, 0, 6)
    plain = costs.seconds(2, 6)
    assert value.n_answers == 2 and value.seconds(0) == value.plain <= value.seconds(1) <= value.seconds(6)
    assert value.seconds(6) - value.plain == pytest.approx(DEAR * (plain[5] - value.plain))
    behind = costs.value(2, 2, 4)
    assert behind.seconds(4) - value.plain == pytest.approx(DEAR * (plain[5] - plain[1]))
    before = costs.credit
    costs.timed(2, 6, 2 * value.plain, "wide")  # compiles
    beyond = costs.timed(2, 6, 2 * value.plain, "wide", n_helped=6)
    assert beyond == pytest.approx(1.0) and costs.credit == before
