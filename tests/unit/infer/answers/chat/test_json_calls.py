"""Calls as JSON. `read` cuts every answer at every place."""

import json

import pytest
from answer_reading import FALCON, GRANITE, JAMBA, LLAMA, MISTRAL, NEMOTRON2, Read, read, tool

from hybrid.infer.answers.chat.format import CallFormat, JsonCall

TOOLS = [tool("f"), tool("g")]
F = ("f", '{"a": 1}')
G = ("g", "{}")
ONE = '{"name": "f", "arguments": {"a": 1}}'
TWO = '{"name": "g", "arguments": {}}'


@pytest.mark.parametrize(
    ("format", "answer"),
    [
        (JAMBA, f"<tool_calls>[\n    {ONE},\n    {TWO}\n]</tool_calls>"),
        (JAMBA, f"<tool_calls> [{ONE} , {TWO}] </tool_calls>\n"),
        (JAMBA, f"<tool_calls>[{ONE}, {TWO}]"),  # no closing mark
        (JAMBA, f"<tool_calls>[{ONE}, {TWO}"),
        (JAMBA, f"<tool_calls>{ONE}</tool_calls><tool_calls>{TWO}</tool_calls>"),  # no brackets, two sections
        (GRANITE, f"<tool_call>\n{ONE}\n</tool_call>\n<tool_call>\n{TWO}\n</tool_call>"),
        (GRANITE, f"<tool_call>{ONE}<tool_call>{TWO}"),
        (GRANITE, f"<tool_call>\n[{ONE}, {TWO}]\n</tool_call>"),  # a list in the marks of one call
        (FALCON, f"<tool_call>\n[\n{ONE},\n{TWO}\n]\n</tool_call>"),
        (FALCON, f"<tool_call>\n{ONE}\n</tool_call>\n<tool_call>\n{TWO}\n</tool_call>"),
        (NEMOTRON2, f"<TOOLCALL>[{ONE}, {TWO}]</TOOLCALL>"),
        (NEMOTRON2, f"<TOOLCALL>[{ONE} {TWO},]</TOOLCALL>"),
        (MISTRAL, '[TOOL_CALLS][{"name": "f", "arguments": {"a": 1}, "id": "abc"}, {"id": "d", "name": "g"}]'),
        (LLAMA, '{"name": "f", "parameters": {"a": 1}}\n{"name": "g", "parameters": {}}'),
        (LLAMA, '\n {"type": "function", "name": "f", "parameters": {"a": 1}}; {"name": "g"}'),
    ],
)
def test_formats(format: CallFormat, answer: str) -> None:
    found = read(answer, format, TOOLS)
    if format is LLAMA and ";" in answer:
        assert found == Read("", '; {"name": "g"}', [F])
    else:
        assert found == Read("", "", [F, G])


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ('{"arguments": {"a": 1}, "name": "f"}', F),
        ('{"arguments": "{\\"a\\": 1}", "name": "f"}', F),
        ('{"name": "f", "arguments": "{\\"a\\": 1}"}', F),
        ('{"name": "f", "parameters": {"a": 1}}', F),
        ('{ "name" : "f" , "arguments" : {"a": 1} }', F),
        ('{"x": [1, {"name": "g"}], "name": "f", "y": null, "arguments": {"a": 1}, "z": "}"}', F),
        ('{"name": "f", "name": "g", "arguments": {"a": 1}, "arguments": {}}', F),
        ('{"n\\u0061me": "\\u0066", "arguments": {"a": 1}}', F),
        ('{"name": "f"}', ("f", "{}")),
        ('{"name": "f", "arguments": null}', ("f", "{}")),
        ('{"name": "f", "arguments": ""}', ("f", "{}")),
        ('{"name": "f", "arguments": " "}', ("f", "{}")),
        ('{"name": "f", "arguments": }', ("f", "{}")),
        ('{"name": "f", "arguments": "hello \\"x\\""}', ("f", '"hello \\"x\\""')),
        ('{"name": "f", "arguments": [1, "]"]}', ("f", '[1, "]"]')),
        ('{"name": "f", "arguments": 5}', ("f", "5")),
        ('{"name": "f", "arguments": {"a": "</tool_call> } \\" \\\\"}}', ("f", '{"a": "</tool_call> } \\" \\\\"}')),
        ('{"name": "f", "arguments": {"a":{"b":[{}]}, "c":\n[]}}', ("f", '{"a":{"b":[{}]}, "c":\n[]}')),
        ('{"name": "f", "arguments": {"a": \'x\'}}', ("f", "{\"a\": 'x'}")),  # as the model wrote it
        ('{"name": "f", "arguments": "{\\"a\\": \\"\\\\n\\u00e9\\ud83d\\ude00\\"}"}', ("f", '{"a": "\\né😀"}')),
        ('{"name": "f", "arguments": "{\\"a\\": \\"\\ud83d\\"}"}', ("f", '{"a": "\\ud83d"}')),
        ('{"name": "f", "arguments": "{\\"a\\": \\"\\ude00\\ud83dx\\u12\\"}"}', ("f", '{"a": "\\ude00\\ud83dx\\u12"}')),
    ],
)
def test_objects(call: str, expected: tuple[str, str]) -> None:
    assert read(f"<tool_call>\n{call}\n</tool_call>", GRANITE, TOOLS) == Read("", "", [expected])


@pytest.mark.parametrize(
    "answer",
    [
        "<tool_call>",
        "<tool_call>{",
        "<tool_call>{}",
        "<tool_call>{}</tool_call>",
        "<tool_call>[]x</tool_call>",
        '<tool_call>{"name": "h"}</tool_call>',
        '<tool_call>{"name": 5, "arguments": {}}</tool_call>',
        '<tool_call>{"name": ["f"]}</tool_call>',
        '<tool_call>{"name" "f"}</tool_call>',
        '<tool_call>{name: "f"}</tool_call>',
        '<tool_call>{"name": "f\\x"}</tool_call>',
        '<tool_call>{"arguments": {"a": 1}}</tool_call>',
        '<tool_call>{"arguments": {"a": "</tool_call>',
        "<tool_call> <tool_calls>",
        "Use <tool_call> for calls.",
    ],
)
def test_what_is_no_call_is_text(answer: str) -> None:
    assert read(answer, GRANITE, TOOLS) == Read("", answer)
    assert read(answer, FALCON, TOOLS).calls == []


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("<TOOLCALL>[]</TOOLCALL>", Read()),
        ("<TOOLCALL>[ ]</TOOLCALL>\nNo tool helps.", Read("", "No tool helps.")),
        ("So: <TOOLCALL>[]</TOOLCALL>", Read("", "So:")),
        ("<TOOLCALL>[]", Read("", "<TOOLCALL>[]")),
        ("a <TOOLCALL>[]</TOOLCALL> b", Read("", "a\nb")),
        (f"<TOOLCALL>[]</TOOLCALL> <TOOLCALL>[{ONE}]</TOOLCALL>", Read("", "", [F])),
    ],
)
def test_a_list_of_no_calls(answer: str, expected: Read) -> None:
    """Nemotron models write an empty list where no tool helps."""
    assert read(answer, NEMOTRON2, TOOLS) == expected


def test_thoughts_go_on_behind_a_list_of_no_calls() -> None:
    answer = "So: <TOOLCALL>[]</TOOLCALL> none.</think>\nSeven."
    assert read(answer, NEMOTRON2, TOOLS, thinks=True) == Read("So:  none.", "Seven.")


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (f"<TOOLCALL>[{ONE}, {{}}]</TOOLCALL>", Read("", ", {}]</TOOLCALL>", [F])),
        (f"<TOOLCALL>[{ONE}]</TOOLCALL>, and", Read("", ", and", [F])),
        (f"<TOOLCALL>[{ONE}\n\nDone.", Read("", "Done.", [F])),
        ('<TOOLCALL>[{"name": "f", "arguments": {"a": 1}]</TOOLCALL>x', Read("", "x", [F])),
        (
            '<TOOLCALL>[{"name": "f", "arguments": {"a": {"b": 1}]</TOOLCALL>x',
            Read("", "x", [("f", '{"a": {"b": 1}]')]),
        ),
        ('<TOOLCALL>[{"name": "f", "arguments": {"a": 1</TOOLCALL>x', Read("", "x", [("f", '{"a": 1')])),
        ('<TOOLCALL>[{"name": "f" "arguments": {}}]</TOOLCALL>', Read("", '"arguments": {}}]</TOOLCALL>', [("f", "")])),
    ],
)
def test_slips_behind_a_name(answer: str, expected: Read) -> None:
    assert read(answer, NEMOTRON2, TOOLS) == expected
    if answer.endswith("</TOOLCALL>") and not expected.calls:  # thoughts go on
        assert read(f"{answer} so</think>x", NEMOTRON2, TOOLS, thinks=True) == Read(f"{expected.text} so".strip(), "x")


@pytest.mark.parametrize("answer", ["Hello {}", '{"a": 1}', "[1, 2]", '{"name": "h"}', "{", '{"name"', '"name"', ""])
def test_without_a_mark_an_answer_is_calls_when_it_begins_as_one(answer: str) -> None:
    assert read(answer, LLAMA, TOOLS) == Read("", answer)
    call = '{"name": "f", "parameters": {"a": 1}}'
    assert read(f"Text {call}", LLAMA, TOOLS) == Read("", f"Text {call}")
    assert read(f"<think>x</think>\n{call} y", LLAMA, TOOLS) == Read("x", "y", [F])


def test_arguments_keep_their_bytes() -> None:
    """A client sends back what the model wrote, so that cached tokens stay valid."""
    written = '{ "b":1.50,\n "a" : "\\u00e9\\/é" }'
    (found,) = read(f'<tool_call>{{"name":"f","arguments":{written}}}</tool_call>', GRANITE, TOOLS).calls
    assert found == ("f", written)
    assert json.loads(found[1]) == {"b": 1.5, "a": "é/é"}


def test_a_mark_between_sections() -> None:
    format = CallFormat("<call>", "", "", JsonCall("<call>", "</call>"), again=", ")
    assert read(f"<call>{ONE}</call>, <call>{TWO}</call>, and", format, TOOLS) == Read("", ", and", [F, G])
