"""A part of the prompts that changes with every request is reported from the third time on, and only now and then."""

import numpy as np

from hybrid.infer.answers.batch.changed_header import DEEPEST, EVERY, FIRST, MOST, SAME, WORTH, ChangedHeaders
from hybrid.infer.answers.batch.difference import Quotes

WORDS = Quotes("10:02", "10:01")
BEFORE, BEHIND = list(range(1000, 1014)), list(range(2000, 2500))


def seen(headers: ChangedHeaders, before: list[int], given: list[int], known: list[int], n: int | None = None) -> str:
    """The report after a text `before + given`, where `before + known` is remembered; "" for no report."""
    at = next((i for i, (a, b) in enumerate(zip(given, known, strict=False)) if a != b), 0)
    ids = np.array(before + given, np.int32)
    return headers.seen(ids, len(before) + at, np.array(known[at:], np.int32), WORDS)


def test_a_date_in_the_first_line() -> None:
    headers = ChangedHeaders()
    said = [seen(headers, BEFORE, [i + 1, *BEHIND], [i, *BEHIND]) for i in range(2 * EVERY + FIRST)]
    told = [i for i, line in enumerate(said) if line]
    assert told == [FIRST - 1, FIRST - 1 + EVERY, FIRST - 1 + 2 * EVERY]
    assert said[FIRST - 1] == (
        "the text at token 14 changes with every request ('10:01', then '10:02'): 3 requests read 1500 tokens again. "
        "Put it at the end of the prompt."
    )


def test_it_may_have_another_length_and_begin_to_differ_elsewhere() -> None:
    headers = ChangedHeaders()
    assert not seen(headers, BEFORE, [7, 8, 9, *BEHIND], [7, 8, 10, *BEHIND])
    assert not seen(headers, BEFORE, [7, 11, 12, 13, *BEHIND], [7, 8, 9, *BEHIND])
    assert "at token 14 changes" in seen(headers, BEFORE, [5, *BEHIND], [7, 11, 12, 13, *BEHIND])


def test_what_is_no_header() -> None:
    headers = ChangedHeaders()
    for i in range(20):
        # other text after it; too little after it; another offset or text before it; too far from the start; tokens
        other = list(range(5000 + 600 * i, 5500 + 600 * i))
        assert not seen(headers, BEFORE, [i + 1, *other], [i, *BEHIND])
        assert not seen(headers, BEFORE, [i + 1, *BEHIND[: WORTH - 1]], [i, *BEHIND[: WORTH - 1]])
        assert not seen(headers, list(range(i * 50 + 50)), [i + 1, *other], [i, *other])
        assert not seen(headers, [3] * (DEEPEST + 1), [i + 1, *BEHIND], [i, *BEHIND])
        same = headers.seen(np.array([1, *BEHIND], np.int32), 0, np.array(BEHIND, np.int32), Quotes("a", "a", True))
        assert not same
    assert len(headers._headers) <= MOST


def test_short_texts_are_no_trouble() -> None:
    headers = ChangedHeaders()
    for n in (0, 1, SAME - 1, SAME, SAME + 1, WORTH):
        for m in (1, SAME, WORTH):
            for _ in range(2):
                assert not seen(headers, BEFORE, [1, *BEHIND[:n]], [2, *BEHIND[:m]])


def test_two_agents_at_once() -> None:
    """Each agent has its own header; the second one is recognized while the first is watched."""
    headers = ChangedHeaders()
    agents = [(list(range(start, start + 14)), list(range(start + 100, start + 600))) for start in (1000, 8000)]
    said = []
    for i, which in enumerate([0, 0, 1, 1, 1, 0, 1, 0]):
        before, after = agents[which]
        said.append(seen(headers, before, [i + 1, *after], [i, *after]))
    assert [i for i, line in enumerate(said) if line] == [4, 5]
