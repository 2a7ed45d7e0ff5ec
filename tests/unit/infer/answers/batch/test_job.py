"""The state after an interrupt of a step that was to verify guesses."""

from types import SimpleNamespace
from typing import Any

import pytest

from hybrid.infer.answers.batch.job import RunningJob

GUESS = [5, 6, 7]


@pytest.mark.parametrize(
    ("n_past", "drawn", "kept", "pending"),
    [
        (10, [], None, [4]),  # the pass did not end: the last token is still to be read
        (14, [], 1, []),  # it ended, and nothing was drawn from it
        (14, [5, 6], 3, []),
        (14, [5, 9], 2, [9]),  # the second guess was wrong
        (12, [5, 9], None, [9]),  # and was taken back
    ],
)
def test_a_step_that_was_broken_off(n_past: int, drawn: list[int], kept: int | None, pending: list[int]) -> None:
    settled: list[int] = []
    runner = SimpleNamespace(settle=lambda seq, n: settled.append(n))
    result = SimpleNamespace(ids=[3, 4, *drawn], pending=drawn[-1:] or [4])
    answer: Any = object.__new__(RunningJob)
    answer.job, answer.seq = SimpleNamespace(result=result), SimpleNamespace(n_past=n_past, runner=runner)
    answer.before, answer.is_read, answer.guess = (10, 2), True, GUESS
    answer.settle()
    assert settled == ([] if kept is None else [kept]) and result.pending == pending
