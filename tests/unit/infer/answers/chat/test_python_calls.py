"""Calls in Python syntax. `read` cuts every answer at every offset."""

import ast
import json
from typing import Any

import pytest
from answer_reading import LFM, Read, read, tool
from hypothesis import given, settings
from hypothesis import strategies as st

from hybrid.infer.answers.chat.format import ChatFormat
from hybrid.infer.answers.chat.reader import AnswerReader
from hybrid.infer.answers.chat.tools import tools_of

pytestmark = pytest.mark.exhaustive

TOOLS = [
    tool("f", {"a": {"type": "integer"}, "b": {}, "zip": {"type": "string"}}),
    tool("Calendar.create_event", {}),
    tool("g"),
]


def arguments(inside: str) -> Any:
    """The arguments read from the call f(...)."""
    (found,) = read(f"<|tool_call_start|>[f({inside})]<|tool_call_end|>", LFM, TOOLS).calls
    assert found[0] == "f"
    return json.loads(found[1])


@pytest.mark.parametrize(
    ("inside", "expected"),
    [
        ("", {}),
        (" ", {}),
        ("a=1", {"a": 1}),
        ("a = 1 , b = 'x'", {"a": 1, "b": "x"}),
        ("a=1,", {"a": 1}),
        ("b=True, a=None", {"b": True, "a": None}),
        ("b=true, a=null", {"b": True, "a": None}),
        ("b={'enabled': True, \"count\": 3, 'note': null}", {"b": {"enabled": True, "count": 3, "note": None}}),
        ("b=['Alice', \"Bob\", [], {}, (1, 2.5)]", {"b": ["Alice", "Bob", [], {}, [1, 2.5]]}),
        ("b=[1, 2,], c={'x': 1,}", {"b": [1, 2], "c": {"x": 1}}),
        ("b={1: 2, -1: 3, True: 4}", {"b": {"1": 2, "-1": 3, "true": 4}}),
        ("a=-5, b=+2, c=-0.5e-3, d=- 1", {"a": -5, "b": 2, "c": -0.5e-3, "d": -1}),
        ("a=07, b=[007, 0, 00, 0.5, 08]", {"a": 7, "b": [7, 0, 0, 0.5, 8]}),
        ("a=1_000, b=1.", {"a": 1000, "b": 1.0}),
        ('b=\'it\\\'s\', c="say \\"hi\\""', {"b": "it's", "c": 'say "hi"'}),
        ("b='a, b) ] }', c='x=1'", {"b": "a, b) ] }", "c": "x=1"}),
        ("b='\\n\\t\\x41\\u00e9\\U0001F600\\101\\q'", {"b": "\n\t\x41\u00e9\U0001f600A\\q"}),
        ("b=['\\n\\x41\\q', '<|tool_call_end|>']", {"b": ["\nA\\q", "<|tool_call_end|>"]}),
        ("b='\\ud83d\\ude00', c=['\\ud83d\\ude00']", {"b": "\U0001f600", "c": ["\U0001f600"]}),
        ("b='two\nlines', c='''a'b''c''', d=\"\"\"\"x\"\"\"", {"b": "two\nlines", "c": "a'b''c", "d": '"x'}),
        ("b='', c=\"\", d=['', '' '']", {"b": "", "c": "", "d": ["", ""]}),
        ("b='a' \"b\"", {"b": "ab"}),
        ("1, 'x', 5", {"a": 1, "b": "x", "zip": "5"}),  # named by the order of the schema's properties
        ("[1], b=2", {"a": [1], "b": 2}),
        ("1, 2, 3, 4, 5", {"a": 1, "b": 2, "zip": "3"}),  # no property is left for the others
        ("b=Paris", {"b": "Paris"}),
        ("b=1 + 2, a=1", {"b": "1 + 2", "a": 1}),
        ("b=__import__('os').system('x'), a=1", {"b": "__import__('os').system('x')", "a": 1}),
        ("b=[x for x in (1,)]", {"b": "[x for x in (1,)]"}),
        ("b=f'{a}', c=r'x'", {"b": "f'{a}'", "c": "r'x'"}),
        ("b=1e999, c=-True, d=1j, e=0x1F", {"b": float("inf"), "c": "-True", "d": "1j", "e": "0x1F"}),
        ("b='x'.upper(), c=2')", {"b": "x'.upper(), c=2"}),
        ("b='sed -n '360,450p' /x', a=1", {"b": "sed -n '360,450p' /x", "a": 1}),  # models nest quotes so
        ("b=['say 'hi'', \"say \"hi\" now\"]", {"b": ["say 'hi'", 'say "hi" now']}),
        ("zip=02139, a=1", {"zip": "02139", "a": 1}),  # the schema says that it is a text
        ("zip=None, a='x'", {"zip": None, "a": "x"}),
        (",a=1", {"a": 1}),
        ("b=" + "[" * 60 + "]" * 60, {"b": "[" * 60 + "]" * 60}),
    ],
)
def test_arguments(inside: str, expected: Any) -> None:
    assert arguments(inside) == expected


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("<|tool_call_start|>[f(a=1), g()]<|tool_call_end|>", Read("", "", [("f", '{"a": 1}'), ("g", "{}")])),
        ("<|tool_call_start|> [ f (a=1),\n g() ] <|tool_call_end|>\n", Read("", "", [("f", '{"a": 1}'), ("g", "{}")])),
        (
            "Two.<|tool_call_start|>[g()]<|tool_call_end|><|tool_call_start|>[g()]<|tool_call_end|>",
            Read("", "Two.", [("g", "{}"), ("g", "{}")]),
        ),
        ("<|tool_call_start|>g()<|tool_call_end|>Done", Read("", "Done", [("g", "{}")])),
        ("<|tool_call_start|>[Calendar.create_event(t='d')]", Read("", "", [("Calendar.create_event", '{"t": "d"}')])),
        ("<|tool_call_start|>[f(a=1", Read("", "", [("f", '{"a": ')])),
        ("<|tool_call_start|>[f(a=", Read("", "", [("f", '{"a": ')])),
        ("<|tool_call_start|>[f(a", Read("", "", [("f", "")])),
        ("<|tool_call_start|>[f(b='xy", Read("", "", [("f", '{"b": "xy')])),
        ("<|tool_call_start|>[f(b='xy'", Read("", "", [("f", '{"b": "xy"')])),
        ("<|tool_call_start|>[f", Read("", "<|tool_call_start|>[f")),
        ("<|tool_call_start|>[h(a=1)]<|tool_call_end|>", Read("", "<|tool_call_start|>[h(a=1)]<|tool_call_end|>")),
        ("<|tool_call_start|>[f(a=1]<|tool_call_end|>x", Read("", "x", [("f", '{"a": 1}')])),
        ("<|tool_call_start|>[f(a=1<|tool_call_end|>x", Read("", "x", [("f", '{"a": 1}')])),
        ("<|tool_call_start|>[f(a=[1<|tool_call_end|>x", Read("", "x", [("f", '{"a": "[1"}')])),
        ("<|tool_call_start|>[g(), h(b=2)]", Read("", ", h(b=2)]", [("g", "{}")])),
        ("Use [link text](url) or [f](x).", Read("", "Use [link text](url) or [f](x).")),
    ],
)
def test_sections(answer: str, expected: Read) -> None:
    assert read(answer, LFM, TOOLS) == expected


# values that JSON also has
LITERALS = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**12), 10**12)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab'\" \n\\é", max_size=4), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=40)
@given(st.dictionaries(st.sampled_from(["b", "c", "long_name"]), LITERALS, max_size=3))
def test_what_python_writes_is_what_ast_reads(values: dict[str, Any]) -> None:
    inside = ", ".join(f"{key}={value!r}" for key, value in values.items())
    call = ast.parse(f"f({inside})", mode="eval").body
    assert isinstance(call, ast.Call)
    expected = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}
    assert arguments(inside) == expected


def test_strings_are_told_while_they_are_written() -> None:
    reader = AnswerReader(ChatFormat(None, LFM), tools_of(TOOLS))

    def told(piece: str) -> str:
        return "".join(part.text for part in reader.push(piece) if part.kind == "arguments")

    assert told("<|tool_call_start|>[f(b") == ""
    assert told("=") == ""
    assert told("'x\\") == '{"b": "x'
    assert told("ny") == "\\ny"
    assert told("'") == ""  # it may be a part of the string
    assert told(", a=[1") == '", "a": '
    assert told("]") == ""
    assert told(")") == "[1]}"
