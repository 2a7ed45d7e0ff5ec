"""The limits of one rendering."""

import pytest

from hybrid.infer.text.template_budget import MAX_MEMORY, MAX_STEPS, MAX_TEXT, Budget, LimitError


def test_steps_and_characters_are_one_count() -> None:
    budget = Budget()
    budget.step(3)
    budget.touch(2048)
    assert budget.steps == 5
    assert list(budget.counted("abc", 2)) == ["a", "b", "c"] and budget.steps == 11
    with pytest.raises(LimitError, match=f"more than {MAX_STEPS} steps"):
        budget.step(MAX_STEPS)
    budget.begin()
    assert budget.steps == 0
    budget.exhaust()
    assert budget.steps > MAX_STEPS


def test_what_nothing_holds_is_taken_off() -> None:
    budget = Budget()
    for _ in range(100):
        budget.made("a" * (MAX_TEXT // 2))
    held = []
    with pytest.raises(LimitError, match=f"it holds more than {MAX_MEMORY} bytes"):
        for _ in range(100):
            held.append(budget.made("a" * (MAX_TEXT // 2)))
    assert len(held) * MAX_TEXT // 2 in range(MAX_MEMORY - MAX_TEXT, MAX_MEMORY + 1)


def test_values_that_are_in_a_value_twice_are_visited_twice() -> None:
    budget = Budget()
    text = "abc"
    assert budget.walk(text) == (3, 1)
    inner = [text, text]
    once, _ = budget.walk(inner)
    twice, depth = budget.walk([inner, inner])
    assert twice > 2 * once and depth == 3
    before = budget.used
    value: object = 1
    for _ in range(60):
        value = {"a": value, "b": (value,)}
    with pytest.raises(LimitError, match="steps"):
        budget.walk(value)
    assert before < budget.used


def test_a_string_that_is_too_long() -> None:
    with pytest.raises(LimitError, match=f"a string of more than {MAX_TEXT} characters"):
        Budget().room(MAX_TEXT + 1)
    with pytest.raises(LimitError, match="bytes"):
        Budget().pieces(MAX_MEMORY)
