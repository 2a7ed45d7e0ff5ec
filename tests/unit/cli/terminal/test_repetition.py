"""Repeated text is noticed once; prose, lists and short repetitions are not."""

import random

import pytest

from hybrid.cli.terminal.repetition import WATCHED, Repetition

WORDS = ["the", "model", "reads", "a text", "and", "keeps", "its", "state", "in memory", "until", "its answer", "ends"]


def _found(text: str, size: int) -> int:
    watch = Repetition()
    return sum(watch.push(text[at : at + size]) for at in range(0, len(text), size))


@pytest.mark.parametrize("size", [1, 3, 17, 400])
@pytest.mark.parametrize("again", ["a", "la femme au martyre, ", "x" * 50 + "y" * 250])
def test_a_loop_is_noticed_once_however_the_text_arrives(again: str, size: int) -> None:
    prose = " ".join(random.Random(1).choices(WORDS, k=60))
    assert _found(prose + again * (3 * WATCHED // len(again)), size) == 1


def test_other_texts_are_not_noticed() -> None:
    draw = random.Random(2)
    prose = " ".join(draw.choices(WORDS, k=2000))
    listed = "".join(f"{i}. {draw.choice(WORDS)}\n" for i in range(2000))
    short = prose[:800] + "la " * 300 + prose[:800]
    assert [_found(text, 5) for text in (prose, listed, short, "")] == [0, 0, 0, 0]
