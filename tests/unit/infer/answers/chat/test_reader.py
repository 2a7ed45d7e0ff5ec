"""Thoughts and text of answers, and texts that are no calls. `read` cuts every answer at every offset."""

import pytest
from answer_reading import FALCON, FALLBACK, LFM, QWEN, THINK, Read, read, read_in, tool

from hybrid.infer.answers.chat.cursor import Cursor
from hybrid.infer.answers.chat.format import CallFormat, ChatFormat, ThoughtFormat
from hybrid.infer.answers.chat.reader import AnswerReader
from hybrid.infer.answers.chat.tools import tools_of

TOOLS = [tool("f"), tool("g")]
CALL = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
F = ("f", '{"a": 1}')


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "Hello",
        " \n Hello,\n world! \n",
        " ",
        "a < b <b>c</b> <",
        "<thin",
        "<tool_call",
        "Use <think> to think. </think>",
    ],
)
def test_an_answer_without_thoughts_and_calls_is_text_to_the_character(answer: str) -> None:
    assert read(answer, tools=TOOLS) == Read(text=answer)
    assert read(answer) == Read(text=answer)
    assert read(answer, thoughts=None) == Read(text=answer)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("<think>\nI'm\nthinking\n</think>\n\nHello", Read("I'm\nthinking", "Hello")),
        ("\n<think>a</think>b ", Read("a", "b ")),
        ("<think>a", Read("a")),
        ("<think>a </thi", Read("a </thi")),
        ("<think>\n\n</think>\n\nb", Read("", "b")),
        ("<think><think>\n<think>a <think> b</think>c", Read("a <think> b", "c")),
        ("<think>a</think>\n<think>b</think>c</think>", Read("a\nb", "c</think>")),
        ("\n</think>\n\nHello", Read("", "\n</think>\n\nHello")),  # no thoughts were opened
        ("<think>a</think></think>b", Read("a", "</think>b")),
        ("<think>a</think> \n ", Read("a")),
        (f"<think>a</think>{CALL}", Read("a", "", [F])),
        (f"<think>a {CALL} b</think>c", Read(f"a {CALL} b", "c")),  # opened by the model: the tag is part of the answer
        (f"{CALL}\n<think>b</think>c", Read("b", "c", [F])),
    ],
)
def test_thoughts(answer: str, expected: Read) -> None:
    assert read(answer, tools=TOOLS) == expected


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("I'm\nthinking\n</think>\n\nHello", Read("I'm\nthinking", "Hello")),
        ("</think>Hello", Read("", "Hello")),
        ("a</think>\n</think>Hello", Read("a", "Hello")),
        ("\n<think>\na</think>b", Read("a", "b")),  # opened again
        ("all of it ", Read("all of it")),
        (f"Need it.\n{CALL}", Read("Need it.", "", [F])),  # opened by the prompt: a call ends them
        (f"{CALL}\n</think>\n\nb", Read("", "b", [F])),
        ('I use <tool_call> and {"name": "f"} </think>b', Read('I use <tool_call> and {"name": "f"}', "b")),
        ('<tool_call>{"name": "x"}</tool_call></think>b', Read('<tool_call>{"name": "x"}</tool_call>', "b")),
    ],
)
def test_thoughts_that_the_prompt_opened(answer: str, expected: Read) -> None:
    assert read(answer, tools=TOOLS, thinks=True) == expected


def test_a_continued_answer_keeps_its_white_space() -> None:
    assert read(" thinking\n</think>\n\nHi", thinks=True, continues=True) == Read(" thinking", "Hi")
    assert read(" world", tools=TOOLS, continues=True) == Read("", " world")


def test_thoughts_without_an_opening_mark() -> None:
    format = ThoughtFormat("", "[END]", is_opened=True)
    assert read("a [END] b", thoughts=format, thinks=True) == Read("a", "b")
    assert read("a b", thoughts=format) == Read("", "a b")


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (f"Text. \n{CALL}", Read("", "Text.", [F])),
        (f" \n {CALL}\n", Read("", "", [F])),
        (f"{CALL}\n{CALL}", Read("", "", [F, F])),
        (f"Text. {CALL} more. {CALL} End.\n", Read("", "Text.\nmore.\nEnd.\n", [F, F])),
        ("a <tool_call> b", Read("", "a <tool_call> b")),
        (
            '<tool_call>{"name": "x", "arguments": {}}</tool_call>',
            Read("", '<tool_call>{"name": "x", "arguments": {}}</tool_call>'),
        ),
        (f"<tool_call>{CALL}", Read("", "<tool_call>", [F])),
        ('<tool_call>{"name": "f', Read("", '<tool_call>{"name": "f')),
        ('<tool_call>{"name": "f"', Read("", "", [("f", "")])),
        ('<tool_call>{"name": "f", "arguments": {"a": "b', Read("", "", [("f", '{"a": "b')])),
        ('<tool_call>{"name": "f", "arguments": {"a": 1}', Read("", "", [F])),
        ('<tool_call>{"name": "f", "arguments": {"a": 1}}', Read("", "", [F])),
        ('<tool_call>{"name": "f", "arguments": {"a": 1}} and more', Read("", "and more", [F])),
    ],
)
def test_text_and_calls(answer: str, expected: Read) -> None:
    assert read(answer, tools=TOOLS) == expected


@pytest.mark.parametrize(
    ("answer", "expected", "repeated"),
    [
        (CALL * 2, [F], True),
        (f"a{CALL}b{CALL}c", [F], True),
        (CALL * 3 + CALL.replace("1", "2"), [F, ("f", '{"a": 2}')], True),
        (CALL + CALL.replace('"f"', '"g"') + CALL, [F, ("g", '{"a": 1}'), F], False),
        (CALL + CALL.replace("1}", "1 }"), [F, ("f", '{"a": 1 }')], False),
        (CALL + CALL.replace("1", "12"), [F, ("f", '{"a": 12}')], False),
        (CALL + CALL[: CALL.index("1")], [F, ("f", '{"a": ')], False),
        (CALL + '<tool_call>{"name": "f"', [F, ("f", "")], False),
        ('<tool_call>{"name": "f"}</tool_call>' * 2, [("f", "{}")], True),
    ],
)
@pytest.mark.parametrize("step", [1, 7, 1000])
def test_a_call_that_equals_the_one_before_is_dropped(
    answer: str, expected: list[tuple[str, str]], repeated: bool, step: int
) -> None:
    reader, told = AnswerReader(ChatFormat(None, FALLBACK), tools_of(TOOLS), drop_repeated=True), []
    for i in range(0, len(answer), step):
        told += reader.push(answer[i : i + step])
    told += reader.finish()
    assert [(call.name, call.arguments) for call in reader.calls] == expected
    assert reader.repeated == repeated
    calls = [part for part in told if part.kind == "call"]
    assert [(part.text, part.index) for part in calls] == [(name, i) for i, (name, _) in enumerate(expected)]
    for i, (_, arguments) in enumerate(expected):
        assert "".join(part.text for part in told if part.kind == "arguments" and part.index == i) == arguments


def test_without_tools_marks_of_calls_are_text() -> None:
    assert read(CALL) == Read("", CALL)
    assert read(f"a {CALL}</think>b", thinks=True) == Read(f"a {CALL}", "b")


def test_parts_come_as_early_as_they_can() -> None:
    reader = AnswerReader(ChatFormat(THINK, FALLBACK), tools_of(TOOLS), new_id=lambda: "i")

    def told(piece: str) -> list[tuple[str, str]]:
        return [(part.kind, part.text) for part in reader.push(piece)]

    assert told("<thi") == []
    assert told("nk>a") == [("thought", "a")]
    assert told(" b</") == [("thought", " b")]
    assert told("b ") == [("thought", "</b")]
    assert told("</think> ") == []
    assert told("c <") == [("text", "c")]
    assert told("= d\n") == [("text", " <= d")]
    assert told('<tool_call>{"name": "f') == []
    assert told('"') == [("call", "f")]
    assert told(', "arguments": {"a') == [("arguments", '{"a')]
    assert told('": "x<') == [("arguments", '": "x<')]
    assert told('"}') == [("arguments", '"}')]
    assert told("}</tool_call>") == []
    assert reader.finish() == []


def test_text_waits_for_nothing_where_nothing_else_may_come() -> None:
    reader = AnswerReader(ChatFormat(None, FALLBACK))
    for piece in (" ", "a ", "<tool_call>", " \n"):
        assert [part.text for part in reader.push(piece)] == [piece]


def test_ids_are_of_nine_letters_and_digits() -> None:
    reader = AnswerReader(ChatFormat(None, FALLBACK), tools_of(TOOLS))
    reader.push(CALL * 20)
    ids = [call.id for call in reader.calls]
    assert len(set(ids)) == 20
    assert all(len(id) == 9 and id.isascii() and id.isalnum() for id in ids)


XML = "<tool_call>\n<function=f>\n<parameter=s>\n"


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("format", "begin", "again", "end"),
    [
        (FALLBACK, "", "word ", ""),
        (FALLBACK, "", " ", "x"),
        (FALLBACK, "", "<tool_call>", ""),
        (FALLBACK, "", "<", ""),
        (FALLBACK, "<think>", "<think>", ""),
        (FALLBACK, "<think>", "a ", ""),
        (FALLBACK, '<tool_call>{"', "name", '": 1}'),
        (FALLBACK, '<tool_call>{"arguments": {"a": "', "x\\n", '"}, "name": "f"}'),
        (FALLBACK, '<tool_call>{"name": "f", "arguments": {"a": "', "x", '"}}'),
        (FALLBACK, '<tool_call>{"name": "f", "arguments": "{\\"a\\": \\"', "\\\\n", '\\"}"}'),
        (FALLBACK, '<tool_call>{"name": "f", "arguments": ', "[", ""),
        (FALLBACK, "", CALL, ""),
        (FALCON, "", '<tool_call>{"arguments":"', ""),
        (QWEN, XML, "</parameter>", ""),
        (QWEN, XML, "</parameter> ", "\n</parameter>\n</function>"),
        (QWEN, XML, "<parameter", "\n</parameter>\n</function>"),
        (QWEN, "<tool_call>\n<function=f>\n<parameter=n>\n", "1", "\n</parameter>\n</function>"),
        (QWEN, "<tool_call>\n<function=", "f", ">"),
        (LFM, "<|tool_call_start|>[f(a='", "x\\n", "')]"),
        (LFM, "<|tool_call_start|>[f(a='", "' ", "')]"),
        (LFM, "<|tool_call_start|>[f(a=", "[", ")]"),
        (LFM, "<|tool_call_start|>[f(a=", "1+", ")]"),
        (LFM, "<|tool_call_start|>[", "f(a=1),", "]"),
    ],
)
def test_reading_is_linear(
    format: CallFormat, begin: str, again: str, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Held-back text is read again with each new character, but is never longer than a tag. Counted, not timed."""
    waiting: list[int] = []
    feed = Cursor.feed

    def counting(self: Cursor, text: str) -> None:
        feed(self, text)
        waiting.append(len(self.data))

    monkeypatch.setattr(Cursor, "feed", counting)
    answer = begin + again * (20_000 // len(again)) + end
    tools = tools_of([tool("f", {"s": {"type": "string"}, "n": {"type": ["string", "null", "integer"]}})])
    _, parts = read_in(list(answer), ChatFormat(THINK, format), tools)
    assert sum(len(part.text) for part in parts) <= 2 * len(answer)
    assert len(waiting) == len(answer)
    assert max(waiting) <= len("<|tool_call_start|>")
