"""The server's instruments: their counts, and when a soak counts as failed."""

import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from chat_http import Known, Step, table
from chat_pictures import KnownPictures, shown
from serve_load import Case, Round
from serve_soak import Result
from soak_requests import CHAT, COMPLETIONS, Ask, Parts, Talk, broken, completion, whole_answer


class Letters:
    """Every character is a token."""

    bos = None

    def encode(self, text: str, **_: Any) -> list[int]:
        return [ord(c) for c in text]


def render(messages: list[dict[str, str]]) -> str:
    return "".join(f"<{m['content'].strip()}>" for m in messages) + "<"


def test_the_least_is_what_follows_the_longest_known_beginning() -> None:
    known = Known(Letters(), render)  # type: ignore[arg-type]
    first = [{"role": "user", "content": "abc"}]
    assert known.least(first) == len("<abc><")
    known.add(first, " de\n")
    assert known.least(first) == 0, "sent twice"
    more = [*first, {"role": "assistant", "content": " de\n"}, {"role": "user", "content": "f"}]
    assert known.least(more) == len("e><f><"), "the last token of an answer is drawn, not read"
    assert known.least([{"role": "user", "content": "abx"}]) == len("x><")
    assert "| **sum** | 30 | 10 | 12 (1.20 of the least) |" in table({"a": [Step("x", 10, 5, 4), Step("y", 20, 7, 6)]})


def test_the_least_of_a_conversation_with_pictures() -> None:
    """A picture is known as a whole, or not at all."""

    class Template:
        def render(self, messages: list[dict[str, Any]]) -> str:
            parts = [p for m in messages for p in (m["content"] if isinstance(m["content"], list) else [m["content"]])]
            return "".join(p if isinstance(p, str) else p.get("text", "#") for p in parts) + "<"

    def read(data: bytes) -> SimpleNamespace:
        return SimpleNamespace(layout=SimpleNamespace(text="iiiii"))

    eyes = SimpleNamespace(make=SimpleNamespace(placeholder="#"), read=read)
    known = KnownPictures(Letters(), Template(), eyes)  # type: ignore[arg-type]
    first = [shown(0, "ab")]
    assert known.least(first) == len("iiiiiab<")
    known.add(first, "cd")
    assert known.least([shown(1, "ab")]) == len("iiiiiab<"), "another picture"
    assert known.least([shown(0, "xb")]) == len("xb<")
    with pytest.raises(SystemExit, match="the text of a picture"):
        known.least([*first, {"role": "assistant", "content": "#"}])


def test_memory_that_grows_is_seen() -> None:
    def found(size: Callable[[int], float], ledger: Callable[[int], float] = lambda n: 0.0) -> Result:
        result = Result(n_done=10_000)
        result.memory = [(n, int(size(n)), int(ledger(n))) for n in range(0, 10_000, 100)]
        return result

    rises_first = found(lambda n: 1e8 + 1e8 * min(n, 4500) / 4500)
    assert rises_first.is_flat and rises_first.growth() is not None
    leaks = found(lambda n: 1e8 + 1e3 * n)
    growth = leaks.growth()
    assert growth is not None and not leaks.is_flat and abs(growth[1] - 4.9e6) < 1e4
    assert found(lambda n: 1e8 + 1e3 * n, lambda n: 1e3 * n).is_flat, "the ledger has a budget"
    assert Result(n_done=3, memory=[(0, 1, 0), (2, 9, 0)]).growth() is None, "too few to say"


def test_a_stream_and_a_whole_answer_are_written_down_the_same_way() -> None:
    whole = {
        "choices": [
            {"index": 0, "text": "ab", "finish_reason": "length", "logprobs": {"token_logprobs": [-0.5, -0.25]}},
            {"index": 1, "text": "", "finish_reason": "stop", "logprobs": None},
        ]
    }
    parts = Parts()
    for index, text, reason, logprobs in ((0, "a", None, [-0.5]), (1, "", "stop", []), (0, "b", None, [-0.25])):
        given = {"token_logprobs": logprobs} if logprobs else None
        parts.add({"choices": [{"index": index, "text": text, "finish_reason": reason, "logprobs": given}]})
    parts.add({"choices": [{"index": 0, "text": "", "finish_reason": "length", "logprobs": None}]})
    assert parts.answer() == whole_answer(whole) == [("ab", "length", [-0.5, -0.25]), ("", "stop", [])]
    said = {"delta": {"content": "x"}, "logprobs": {"content": [{"logprob": -1.0}]}}
    chat = Parts()
    chat.add({"choices": [{"index": 0, "finish_reason": "stop", **said}]})
    assert chat.answer() == [("x", "stop", [-1.0])]


def test_conversations_go_on_and_begin_anew() -> None:
    rng, talk = random.Random(1), Talk(7)
    asks = []
    for i in range(8):
        asks.append(talk.ask(rng))
        talk.heard(asks[-1], [(f"answer {i}", "stop", [])])
    assert [len(ask.earlier) for ask in asks] == [0, 1, 2, 3, 4, 5, 0, 1]
    assert asks[2].body["messages"][4]["content"] == "answer 1" and asks[2].path == CHAT
    assert len({ask.key for ask in asks}) == 8
    question = talk.ask(rng)
    talk.forget()
    assert talk.messages == question.body["messages"][:-1]


def test_requests_are_of_all_kinds() -> None:
    rng = random.Random(2)
    bodies = [completion(rng, 1000).body for _ in range(100)]
    assert {type(body["prompt"][0]) for body in bodies} == {str, int} and any("n" in body for body in bodies)
    assert {ask.path for ask in (Ask(COMPLETIONS, body) for body in bodies)} == {COMPLETIONS}
    damaged = [broken(rng) for _ in range(200)]
    assert any(body.startswith(b"[" * 1000) for _, body in damaged)
    assert {path for path, _ in damaged} == {CHAT, COMPLETIONS, "/detokenize"}


def test_a_row_of_the_load() -> None:
    def rounds(*rates: float) -> list[Round]:
        return [Round(100, 100 / rate, [0.5], [0.01, 0.03], 2.0) for rate in rates]

    row = Case(4, "hybrid", False, rounds(90, 100, 110)).row(Case(4, "in process", False, rounds(125)))
    assert row == ["4", "hybrid", "100.0", "22%", "500", "20", "30", "30", "30", "2.00", "20.0%"]
