"""Tools and tool choices are checked: one line says what is wrong and where."""

import pytest

from hybrid.infer.answers.chat.tools import MOST_TOOLS, ToolChoice, choice_of, tools_of
from hybrid.quant.ggml.errors import UsageError


def function(**fields: object) -> dict[str, object]:
    return {"type": "function", "function": {"name": "f", **fields}}


def nested(levels: int) -> dict[str, object]:
    schema: dict[str, object] = {}
    for _ in range(levels):
        schema = {"items": schema}
    return schema


def test_tools() -> None:
    parameters = {"type": "object", "properties": {"a": {"type": "integer"}, "b": True}, "required": ["a"]}
    given = [function(description="does", parameters=parameters, strict=True), function(name="Calendar.add-1")]
    first, second = tools_of(given)
    assert (first.name, first.description, first.parameters) == ("f", "does", parameters)
    assert first.as_given == given[0]
    assert (second.name, second.description, second.parameters) == ("Calendar.add-1", "", {})
    assert tools_of([]) == []


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (None, "tools is missing, expected a list"),
        ({}, "tools is an object, expected a list"),
        ([3], "tools/0 is a number, expected an object"),
        ([{}], 'tools/0/type is null, expected "function"'),
        ([function(), {"type": "web_search"}], 'tools/1/type is "web_search", expected "function"'),
        ([{"type": "function"}], "tools/0/function is missing, expected an object"),
        ([{"type": "function", "function": {}}], "tools/0/function/name is missing, expected a text"),
        ([function(name="")], "tools/0/function/name is '', expected 1 to 64 letters"),
        ([function(name="a b")], "tools/0/function/name is 'a b', expected 1 to 64 letters"),
        ([function(name="f\n")], r"tools/0/function/name is 'f\n', expected 1 to 64 letters"),
        ([function(name="x" * 65)], "expected 1 to 64 letters"),
        ([function(), function()], "tools/1/function/name: 'f' is the name of tools/0 already"),
        ([function(description=[])], "tools/0/function/description is a list, expected a text"),
        ([function(parameters=[])], "tools/0/function/parameters is a list, expected a JSON schema of an object"),
        ([function(parameters="{}")], "tools/0/function/parameters is a text, expected a JSON schema of an object"),
        ([function(parameters=nested(200))], "tools is nested deeper than 100 levels"),
        ([function(parameters=nested(100_000))], "tools is nested deeper than 100 levels"),
        ([function(description="x" * 2_000_000)], "tools has 2000"),
        ([function(parameters={"default": float("nan")})], "tools is not JSON"),
        ([function(parameters={"default": "\ud800"})], "tools is not JSON"),
        ([function(name=f"f{i}") for i in range(MOST_TOOLS + 1)], f"tools has {MOST_TOOLS + 1} entries"),
    ],
)
def test_tools_that_are_refused(value: object, says: str) -> None:
    with pytest.raises(UsageError) as error:
        tools_of(value)
    assert says in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("parameters", "schema", "notes"),
    [
        (
            {"type": "array"},
            {"type": "object"},
            ["`type: array` at parameters cannot be enforced: arguments are an object"],
        ),
        ({"type": ["object", "null"]}, {"type": "object"}, []),
        ({"type": None, "properties": None}, {}, []),
        (
            {"properties": []},
            {"additionalProperties": True},
            ["`properties: []` at parameters cannot be enforced: JSON Schema does not allow that value"],
        ),
        (
            {"properties": {"a": 1}},
            {"properties": {"a": True}},
            ["`1` at parameters.a cannot be enforced: any value is accepted"],
        ),
        (
            {"required": "a"},
            {},
            ["`required: a` at parameters cannot be enforced: JSON Schema does not allow that value"],
        ),
        (
            {"properties": {"a": {"type": "string", "format": "path"}}},
            {"properties": {"a": {"type": "string"}}},
            ["`format: path` at parameters.a cannot be enforced: any string is accepted"],
        ),
    ],
)
def test_what_calls_are_held_to(parameters: dict[str, object], schema: object, notes: list[str]) -> None:
    """Any schema is taken; templates get it unchanged."""
    given = function(parameters=parameters)
    (tool,) = tools_of([given])
    assert tool.parameters == schema and tool.as_given == given
    assert list(tool.notes) == [f"tool `f`: {note}" for note in notes]
    (strict,) = tools_of([function(parameters=parameters, strict=True)])
    assert strict.notes[: len(notes)] == tool.notes and len(strict.notes) == len(notes) + bool(notes)
    assert not notes or strict.notes[-1] == "tool `f`: calls are not as strict as `strict` asks for"


def test_choice() -> None:
    tools = tools_of([function()])
    assert choice_of("none", []) == ToolChoice("none")
    assert choice_of("auto", []) == ToolChoice("auto")
    assert choice_of("required", tools) == ToolChoice("required")
    assert choice_of({"type": "function", "function": {"name": "f"}}, tools) == ToolChoice("required", "f")


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (None, "tool_choice is missing, expected none, auto, required"),
        ("any", "tool_choice is 'any', expected none, auto, required"),
        (["auto"], "tool_choice is a list, expected none, auto, required"),
        ({}, 'tool_choice/type is null, expected "function"'),
        ({"type": "allowed_tools", "allowed_tools": {}}, 'tool_choice/type is "allowed_tools", expected "function"'),
        ({"type": "function"}, "tool_choice/function/name is missing"),
        ({"type": "function", "function": {"name": 3}}, "tool_choice/function/name is a number"),
        ({"type": "function", "function": {"name": "g"}}, "there is no tool 'g', there is f"),
    ],
)
def test_choices_that_are_refused(value: object, says: str) -> None:
    with pytest.raises(UsageError) as error:
        choice_of(value, tools_of([function()]))
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_a_call_cannot_be_required_of_nothing() -> None:
    with pytest.raises(UsageError, match="tool_choice is 'required', but there are no tools"):
        choice_of("required", [])
