"""Calls with a tag for each parameter. `read` cuts every answer at every offset."""

import json
from typing import Any

import pytest
from answer_reading import QWEN, Read, read, tool
from hypothesis import given, settings
from hypothesis import strategies as st

from hybrid.infer.answers.chat.format import CallFormat, ChatFormat, XmlCall
from hybrid.infer.answers.chat.reader import AnswerReader
from hybrid.infer.answers.chat.tools import tools_of

STRING = {"type": "string"}
TOOLS = [
    tool("f", {"s": STRING, "t": STRING, "i": {"type": "integer"}, "o": {"type": "object"}}),
    tool("g"),
]
GLM = CallFormat(
    "<tool_call>",
    "",
    "",
    XmlCall("<tool_call>", "\n", "<arg_key>", "</arg_key>\n<arg_value>", "</arg_value>\n", "</tool_call>"),
    again="\n",
)


def call(*parameters: tuple[str, str], name: str = "f") -> str:
    """A call as the template writes it, with raw values."""
    inside = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in parameters)
    return f"<tool_call>\n<function={name}>\n{inside}</function>\n</tool_call>"


def typed(value: str, schema: Any) -> Any:
    """The value that a parameter with this schema is read as."""
    (found,) = read(call(("a", value)), QWEN, [tool("f", {"a": schema})]).calls
    return json.loads(found[1])["a"]


@pytest.mark.parametrize(
    "value",
    [
        "x",
        "",
        "\n",
        "two\nlines",
        "#include\n",
        "\n\nx\n\n",
        "    indented",
        " ",
        " \nx\n ",
        'He said "hello" \\n',
        'ls && echo "a > b and a < b"',
        "<html>\n <b>x</b>\n</html>",
        "</p",
        "</function>",
        "</function>\n</tool",
        "a </function> b\n\n",
        "a </parameter> b",
        "<parameter=x>\ny\n</parameter> z",
        "12",
        "null",
        "true",
        '{"a": 1}',
        "北京 🌟\u2028\x00\x7f",
    ],
)
def test_strings_are_text_as_it_is(value: str) -> None:
    assert typed(value, STRING) == value


@pytest.mark.exhaustive
@settings(max_examples=40)
@given(st.text('ab<\n>/ "\\é', max_size=12), st.text("ab<\n>/", max_size=3))
def test_any_string(first: str, second: str) -> None:
    found = read(call(("s", first), ("t", second)), QWEN, TOOLS)
    assert [(name, json.loads(text)) for name, text in found.calls] == [("f", {"s": first, "t": second})]
    assert (found.text, found.thoughts) == ("", "")


NULLABLE = {"type": ["string", "null"]}
UNION = {"type": ["string", "number", "boolean", "null"]}
NESTED = {"anyOf": [{"type": "object"}, {"type": "string"}]}


@pytest.mark.parametrize(
    ("schema", "value", "expected"),
    [
        ({"type": "integer"}, "42", 42),
        ({"type": "integer"}, " -100 ", -100),
        ({"type": "integer"}, "007", 7),
        ({"type": "integer"}, "9" * 5000, "long"),
        ({"type": "integer"}, "not-a-number", "not-a-number"),
        ({"type": "integer"}, "NULL", None),
        ({"type": "number"}, "1.5e-3", 0.0015),
        ({"type": "number"}, "3.14.159", "3.14.159"),
        ({"type": "number"}, "NaN", "NaN"),
        ({"type": "number"}, "[1]", [1]),  # JSON, if of another type
        ({"type": "boolean"}, "true", True),
        ({"type": "boolean"}, "True", True),  # as Python's str() writes it in templates
        ({"type": "boolean"}, "FALSE", False),
        ({"type": "boolean"}, "yes", "yes"),
        ({"type": "null"}, "None", None),
        ({"type": "array"}, '[1, "a", null]', [1, "a", None]),
        ({"type": "array"}, "[1, 2, unclosed", "[1, 2, unclosed"),
        ({"type": "array"}, "[" * 100_000, "["),
        ({"type": "object"}, '{"a": {"b": "c"}}', {"a": {"b": "c"}}),
        ({"type": "object"}, '\n{\n "a": 1\n}\n', {"a": 1}),
        ({"type": "object"}, '{"key": unclosed', '{"key": unclosed'),
        (NULLABLE, "hello world", "hello world"),
        (NULLABLE, "null", None),
        (NULLABLE, "null and void", "null and void"),
        (NULLABLE, "nil", "nil"),
        (NULLABLE, "42", "42"),
        (NULLABLE, "", ""),
        ({"type": ["null", "string"]}, "null", None),
        ({"type": ["integer", "null"]}, "42", 42),
        ({"type": ["integer", "null"]}, "null", None),
        ({"type": ["integer", "string"]}, "42.5", "42.5"),
        (UNION, "3.14", 3.14),
        (UNION, "2 dollars", "2 dollars"),
        (UNION, "2024-01-01", "2024-01-01"),
        (UNION, "true", True),
        (UNION, "truely", "truely"),
        (UNION, "hello", "hello"),
        (UNION, '"hello"', '"hello"'),
        (UNION, "[1]", "[1]"),
        (NESTED, '{"a": 1}', {"a": 1}),
        (NESTED, "{not valid json", "{not valid json"),
        (NESTED, "42", "42"),
        ({"oneOf": [{"type": "integer"}, {"type": "object"}]}, "5", 5),
        ({"allOf": [{"type": ["string", "integer"]}, {"type": "integer"}]}, "5", 5),
        ({"allOf": [{"type": ["string", "integer"]}, {"type": "string"}]}, "5", "5"),
        ({"enum": ["celsius", "5"]}, "5", "5"),
        ({"enum": [1, 2, "auto"]}, "2", 2),
        ({"enum": [1, 2, "auto"]}, "auto", "auto"),
        ({"const": "5"}, "5", "5"),
        ({"const": 5}, "5", 5),
        ({"properties": {}}, '{"a": 1}', {"a": 1}),
        ({"items": {}}, "[1]", [1]),
        ({}, "5", 5),
        ({}, "five", "five"),
        ({}, "05:30", "05:30"),
        (True, "[1]", [1]),
        ({"description": "anything"}, '{"a": 1}', {"a": 1}),
        ({"type": 3}, "5", 5),
        ({"type": "string", "enum": [1]}, "5", 5),  # a contradiction: anything
    ],
)
def test_values_are_typed_by_the_schema(schema: Any, value: str, expected: Any) -> None:
    if expected == "long":  # numbers that Python would not convert stay text
        (found,) = read(call(("a", value)), QWEN, [tool("f", {"a": schema})]).calls
        assert found[1] == f'{{"a": {value}}}'
    elif expected == "[":
        (found,) = read(call(("a", value)), QWEN, [tool("f", {"a": schema})]).calls
        assert found[1] == f'{{"a": "{value}"}}'
    else:
        assert typed(value, schema) == expected


@pytest.mark.parametrize(
    ("reference", "value", "expected"),
    [
        ("#/$defs/id", "5", "5"),
        ("#/$defs/via", "5", "5"),
        ("#/$defs/loop", "5", 5),  # says nothing
        ("#/$defs/many", "5", 5),
        ("#/$defs/none", "5", 5),
        ("http://example.com/schema", "5", 5),
        ("#", '{"a": 1}', {"a": 1}),
    ],
)
def test_references(reference: str, value: str, expected: Any) -> None:
    definitions = {
        "id": STRING,
        "via": {"$ref": "#/$defs/id"},
        "loop": {"$ref": "#/$defs/loop"},
        "many": {"anyOf": [{"$ref": "#/$defs/many"}, {"$ref": "#/$defs/many"}]},
    }
    (found,) = read(call(("a", value)), QWEN, [tool("f", {"a": {"$ref": reference}}, **{"$defs": definitions})]).calls
    assert json.loads(found[1]) == {"a": expected}


def test_parameters_that_the_tool_does_not_have() -> None:
    assert read(call(("x", "5")), QWEN, TOOLS).calls == [("f", '{"x": "5"}')]
    more = [tool("f", {}, additionalProperties={"type": "integer"})]
    assert read(call(("x", "5")), QWEN, more).calls == [("f", '{"x": 5}')]
    closed = [tool("f", {}, additionalProperties=False)]
    assert read(call(("x", "5")), QWEN, closed).calls == [("f", '{"x": "5"}')]


F = ("f", '{"s": "x", "i": 1}')
WRITTEN = call(("s", "x"), ("i", "1"))


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (f"{WRITTEN}\n{WRITTEN}\n", Read("", "", [F, F])),
        (f"Text.\n\n{WRITTEN}\nMore", Read("", "Text.\nMore", [F])),
        (WRITTEN.replace("\n", ""), Read("", "", [F])),
        (WRITTEN.replace("\n", "\n \n").replace("\n \nx\n \n", "\nx\n"), Read("", "", [F])),
        (call(name="g"), Read("", "", [("g", "{}")])),
        (call(("location with spaces", "SF")), Read("", "", [("f", '{"location with spaces": "SF"}')])),
        (call(name="h"), Read("", call(name="h"))),
        (f"Use <tool_call> and\n{WRITTEN}", Read("", "Use <tool_call> and", [F])),
        (f"<tool_call>{WRITTEN}", Read("", "<tool_call>", [F])),
        # cut off, or without closing marks
        (WRITTEN.removesuffix("\n</tool_call>"), Read("", "", [F])),
        (WRITTEN.removesuffix("\n</function>\n</tool_call>"), Read("", "", [F])),
        ("<tool_call>\n<function=f", Read("", "<tool_call>\n<function=f")),
        ("<tool_call>\n<function=g>\n", Read("", "", [("g", "{}")])),
        ("<tool_call>\n<function=f>\n<parameter=s", Read("", "", [("f", "")])),
        ("<tool_call>\n<function=f>\n<parameter=s>\nab\n", Read("", "", [("f", '{"s": "ab')])),
        ("<tool_call>\n<function=f>\n<parameter=i>\n12", Read("", "", [("f", '{"i": ')])),
        (WRITTEN.replace("\n</parameter>\n</function>", "\n</function>"), Read("", "", [F])),
        (WRITTEN.replace("\n</parameter>\n</function>", "\n</function>") + " Done.", Read("", "Done.", [F])),
        # without the outer tag
        (WRITTEN.removeprefix("<tool_call>\n"), Read("", "", [F])),
        (f"Call:\n{WRITTEN.removeprefix('<tool_call>')}\n{WRITTEN}", Read("", "Call:", [F, F])),
        ("a <function=b> c <function=f", Read("", "a <function=b> c <function=f")),
    ],
)
def test_sections(answer: str, expected: Read) -> None:
    assert read(answer, QWEN, TOOLS) == expected


def test_only_the_whole_mark_ends_thoughts() -> None:
    assert read(f"Need it.\n{WRITTEN}", QWEN, TOOLS, thinks=True) == Read("Need it.", "", [F])
    inner = WRITTEN.removeprefix("<tool_call>\n")
    assert read(f"As in {inner} </think>x", QWEN, TOOLS, thinks=True) == Read(f"As in {inner}", "x")


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (
            "<tool_call>f\n<arg_key>s</arg_key>\n<arg_value>\nx\n</arg_value>\n<arg_key>i</arg_key>\n<arg_value>2</arg_value>\n"
            "</tool_call>",
            Read("", "", [("f", '{"s": "\\nx\\n", "i": 2}')]),
        ),
        ("<tool_call>g\n</tool_call>\n<tool_call>g</tool_call>", Read("", "", [("g", "{}"), ("g", "{}")])),
        ("<tool_call> f is a tool", Read("", "<tool_call> f is a tool")),
    ],
)
def test_other_marks(answer: str, expected: Read) -> None:
    assert read(answer, GLM, TOOLS) == expected


def test_strings_are_told_while_they_are_written() -> None:
    reader = AnswerReader(ChatFormat(None, QWEN), tools_of([tool("f", {"s": STRING, "n": NULLABLE})]))

    def told(piece: str) -> str:
        return "".join(part.text for part in reader.push(piece) if part.kind == "arguments")

    assert told("<tool_call>\n<function=f>\n<parameter=s") == ""
    assert told(">") == '{"s": "'
    assert told("\nab") == "ab"
    assert told('c"\n') == 'c\\"'  # the line feed may be the one before the tag
    assert told("d</param") == "\\nd"
    assert told("eter>\n") == ""
    assert told("<parameter=n>\nnu") == '", "n": '
    assert told("m") == '"num'
    assert told("ber") == "ber"
    assert told("\n</parameter>\n</function>") == '"}'
