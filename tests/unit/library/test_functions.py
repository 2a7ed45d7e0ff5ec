"""Functions as tools: the descriptions for a model, and the results of its calls."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, TypedDict
from uuid import UUID

import pytest
from pydantic import BaseModel, Field
from verdicts import accepts

from hybrid.functions import Functions
from hybrid.infer.answers.chat.tools import ToolCall
from hybrid.infer.answers.constraints import Constraint, Grammar
from hybrid.infer.answers.constraints.trial import ByteVocabulary
from hybrid.quant.ggml.errors import UsageError

BYTES: Any = ByteVocabulary()


class Unit(Enum):
    C = "c"
    F = "f"


class Place(BaseModel):
    city: str


def google(place: Place, unit: Unit = Unit.C, days: int | None = None, copy: Literal["a", "b"] = "a") -> Any:
    """Tells the weather.

    It has more to say that the model need not know.

    Args:
        place: where
        unit (Unit): in which unit
        days:   how many: any number
    """
    return [type(place).__name__, unit.name, days, copy]


def sphinx(a: Annotated[int, Field(ge=1)], model_id: str) -> str:
    """:param a: a number

    :param model_id: which
    """
    return "x" * a + model_id


def bare(text):  # type: ignore[no-untyped-def]
    return {"text": text, "odd": {1, 2}, "at": object}


def called(function: Callable[..., Any], arguments: str) -> str:
    functions = Functions([function])
    return functions.call(ToolCall("id", function.__name__, arguments))


def test_what_the_model_is_told() -> None:
    (tool,) = Functions([google]).tools
    assert (tool.name, tool.description) == ("google", "Tells the weather.")
    properties = tool.parameters["properties"]
    assert list(properties) == ["place", "unit", "days", "copy"] and tool.parameters["required"] == ["place"]
    assert [properties[name].get("description") for name in properties] == [
        "where",
        "in which unit",
        "how many: any number",
        None,
    ]
    assert tool.parameters["additionalProperties"] is False
    (tool,) = Functions([sphinx]).tools
    assert tool.parameters["properties"]["a"] == {"type": "integer", "minimum": 1, "description": "a number"}
    assert tool.parameters["properties"]["model_id"]["description"] == "which"
    (tool,) = Functions([bare]).tools
    assert tool.parameters["properties"]["text"] == {"type": "string"}


def test_calls_get_checked_values() -> None:
    assert called(google, '{"place": {"city": "Rome"}, "unit": "f"}') == '["Place","F",null,"a"]'
    assert called(sphinx, '{"a": 2, "model_id": "y"}') == "xxy", "a text stays one"
    assert '"text":"a"' in called(bare, '{"text": "a"}')


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ('{"a": 0, "model_id": "y"}', "error: a: Input should be greater than or equal to 1"),
        ('{"a": 1}', "error: model_id: Field required"),
        ('{"a": 1, "model_id": "y", "c": 2}', "error: c: Extra inputs are not permitted"),
        ("nonsense", "error: arguments: Invalid JSON"),
        ("", "error: a: Field required; model_id: Field required"),
    ],
)
def test_wrong_arguments_are_told_to_the_model(arguments: str, says: str) -> None:
    assert called(sphinx, arguments).startswith(says)


async def later(a: int) -> int:
    """Later."""
    return a


def unknown(a: "Nowhere") -> None:  # type: ignore[name-defined]  # noqa: F821
    """Unknown."""


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (later, "tools: later is asynchronous"),
        (unknown, "tools: the parameters of unknown cannot be read"),
        (lambda *a: a, "tools: <lambda> takes \\*a, expected parameters with names"),
        (lambda a: a, "name is '<lambda>', expected 1 to 64 letters"),
        (object(), "is neither a function nor the description of one"),
    ],
)
def test_what_is_no_tool(function: Any, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        Functions([function])


def test_a_parameter_of_no_json() -> None:
    def takes(a: Functions) -> None:
        """Takes."""

    with pytest.raises(UsageError, match=r"tools: takes takes .*Functions as a, which JSON cannot describe\. Annotate"):
        Functions([takes])


@pytest.mark.parametrize("hint", [type[int], Callable[[int], int], range, list[complex | Functions]])
def test_what_json_cannot_describe_is_refused_by_name(hint: Any) -> None:
    def takes(fine: int, bad: Any) -> None:
        """Takes."""

    takes.__annotations__["bad"] = hint
    with pytest.raises(UsageError, match=r"tools: takes takes .* as bad, which JSON cannot describe"):
        Functions([takes])


class Box(TypedDict):
    size: int
    files: NotRequired[set[str]]


@dataclass
class Job:
    at: Path
    n: int = 1


class Point(NamedTuple):
    x: int
    y: int = 0


@pytest.mark.parametrize(
    ("hint", "schema", "given", "value"),
    [
        (Path, {"format": "path", "type": "string"}, "/a", Path("/a")),
        (Path | None, {"anyOf": [{"format": "path", "type": "string"}, {"type": "null"}]}, None, None),
        (set[str], {"items": {"type": "string"}, "type": "array", "uniqueItems": True}, ["a", "a"], {"a"}),
        (frozenset[int], {"items": {"type": "integer"}, "type": "array", "uniqueItems": True}, [1], frozenset([1])),
        (tuple[int, ...], {"items": {"type": "integer"}, "type": "array"}, [1, 2], (1, 2)),
        (tuple[int, str], None, [1, "a"], (1, "a")),
        (Unit, None, "f", Unit.F),
        (Literal["a", 1], {"enum": ["a", 1]}, 1, 1),
        (
            datetime,
            {"format": "date-time", "type": "string"},
            "2024-02-29T10:00:00Z",
            datetime(2024, 2, 29, 10, tzinfo=UTC),
        ),
        (timedelta, {"format": "duration", "type": "string"}, "P1D", timedelta(days=1)),
        (UUID, {"format": "uuid", "type": "string"}, str(UUID(int=1)), UUID(int=1)),
        (Decimal, None, "1.5", Decimal("1.5")),
        (Job, None, {"at": "/a"}, Job(Path("/a"))),
        (list[Place], None, [{"city": "Rome"}], [Place(city="Rome")]),
        (dict[str, Path], None, {"a": "/b"}, {"a": Path("/b")}),
        (Box, None, {"size": 1, "files": ["a"]}, {"size": 1, "files": {"a"}}),
        (list[Box | None], None, [{"size": 1}, None], [{"size": 1}, None]),
        (Annotated[Box, Field(description="which")], None, {"size": 1}, {"size": 1}),
        (Point, None, [1], Point(1)),
    ],
)
def test_arguments_have_their_types(hint: Any, schema: Any, given: Any, value: Any) -> None:
    """The model gets a schema, which can be enforced, and the function gets a value of its type."""
    got = []

    def takes(one: Any) -> None:
        got.append(one)

    takes.__annotations__["one"] = hint
    functions = Functions([takes])
    (tool,) = functions.tools
    told = tool.as_given["function"]["parameters"]["properties"]["one"]
    assert told and (schema is None or told == schema)
    answer = functions.call(ToolCall("id", "takes", json.dumps({"one": given})))
    assert got == [value] and type(got[0]) is type(value), answer
    arguments = json.dumps({"one": given})
    assert accepts(Constraint(Grammar.json_schema(tool.parameters), BYTES), BYTES, arguments)


def test_defaults_stay_what_they_are() -> None:
    odd = object()

    def takes(path: Path = Path("/a"), names: set[str] = frozenset({"b"}), one: int = odd) -> bool:  # type: ignore
        return path == Path("/a") and names == {"b"} and one is odd

    assert called(takes, "{}") == "true"


def test_methods_and_objects() -> None:
    class Shop:
        def price(self, of: str) -> int:
            """What it costs."""
            return len(of)

    assert called(Shop().price, '{"of": "tea"}') == "3"
