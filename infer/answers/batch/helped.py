"""Guesses of a draft model or a head (guessers.py) for the answers of a batch: one call for all of them."""

from collections.abc import Sequence

from ...guessers import Guesser, GuessRequest
from ...step_costs import StepCosts
from .job import RunningJob


def guess_with(helper: Guesser, answers: Sequence[RunningJob], n_answers: int, room: int, costs: StepCosts) -> None:
    """Sets the guess of answers that have none, where it pays, in a step that samples n_answers answers and reads no
    prompt. room: limit on guessed tokens of all answers together.
    """
    if room <= 0 or helper.rests or not costs.is_ready(n_answers):
        return
    asking = [a for a in answers if not a.guess and a.most_guessed > 0 and not a.job.drawing.is_forced]
    asked = [one for answer in asking if (one := _asked(helper, answer, room)) is not None]
    if not asked:
        return
    n_before = sum(len(answer.guess) for answer in answers)
    guesses = helper.guesses([one for one, _ in asked], costs.value(n_answers, n_before, room))
    # the most likely first, of any answer: chances never rise along a guess
    ranked = sorted((-chance, i, j) for i, guess in enumerate(guesses) for j, chance in enumerate(guess.chances))
    for _, i, j in ranked[:room]:
        answer, guess = asked[i][1], guesses[i]
        answer.guess, answer.is_helped = guess.tokens[: j + 1], True


def _asked(helper: Guesser, answer: RunningJob, room: int) -> tuple[GuessRequest, RunningJob] | None:
    """The request for an answer; None if the helper cannot follow more texts."""
    if answer.track is None:
        answer.track = helper.begin(answer.ids, answer.seq)
        if answer.track is None:
            return None
    drawn = answer.result.ids
    answer.track.extend(drawn[answer.n_told :])
    answer.n_told = len(drawn)
    form = answer.job.drawing.constraint
    mask = None if form is None else form.copy()
    return GuessRequest(answer.track, min(room, answer.most_guessed), mask), answer
