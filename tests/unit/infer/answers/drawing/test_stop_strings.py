"""Stop strings are found in a growing text, however many there are and however the text is cut."""

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybrid.infer.answers.drawing.drawing import StopText
from hybrid.infer.answers.drawing.stop_strings import MOST, MOST_CHARACTERS, searching
from hybrid.quant.ggml.errors import UsageError


def looked_for_one_by_one(held: str, new: str, stop: list[str]) -> tuple[str, str, str | None]:
    """The text given out, the text held back, and the stop string found."""
    text = held + new
    hits = [(text.find(one), -len(one)) for one in stop if one in text]
    if hits:
        at, n = min(hits)
        return text[:at], "", text[at : at - n]
    keep = max((n for one in stop for n in range(len(one)) if text.endswith(one[:n])), default=0)
    return text[: len(text) - keep], text[len(text) - keep :], None


@given(st.lists(st.text("abc", max_size=6), max_size=8), st.lists(st.text("abc", min_size=1, max_size=5), max_size=5))
def test_all_at_once_as_one_by_one(parts: list[str], stop: list[str]) -> None:
    chunks = iter(parts)
    stream: Any = SimpleNamespace(push=lambda _: next(chunks), flush=lambda: "")
    text, held = StopText(stream, stop), ""
    for part in parts:
        out, held, found = looked_for_one_by_one(held, part, stop)
        assert (text.push(0), text.found) == (out, found)
        if found is not None:
            assert text.finish() == ""
            return
    assert text.finish() == held


def test_a_character_costs_the_same_whatever_is_looked_for() -> None:
    """Stop strings that nearly match again and again: steps back are paid for by steps forward."""
    stops = searching(["a" * 60 + chr(1000 + i) for i in range(1000)])
    assert len(stops.depth) == 1 + 60 + 1000
    looks, states = 0, stops._next

    class Counted(dict[tuple[int, str], int]):
        def get(self, key: Any, default: Any = None) -> Any:
            nonlocal looks
            looks += 1
            return super().get(key, default)

    state, stops._next = 0, Counted(states)
    try:
        for character in ("a" * 70 + "b") * 50:
            state = stops.step(state, character)
    finally:
        stops._next = states
    assert looks <= 2 * 71 * 50


@pytest.mark.parametrize("stop", [["x"] * (MOST + 1), ["x" * MOST_CHARACTERS, "y"]])
def test_too_many_are_refused_by_name(stop: list[str]) -> None:
    with pytest.raises(UsageError, match=rf"stop: {len(stop)} strings of .* expected at most {MOST} strings of"):
        searching(stop)
    assert searching(stop[:-1]).depth
