"""Functions as tools: what a model is told of them, and what becomes of its calls."""

from collections.abc import Callable
from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from hybrid.functions import Functions
from hybrid.infer.answers.chat.tools import ToolCall
from hybrid.quant.ggml.errors import UsageError


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
        "where", "in which unit", "how many: any number", None
    ]  # fmt: skip
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

    with pytest.raises(UsageError, match="tools: takes has a parameter that is no JSON"):
        Functions([takes])


def test_methods_and_objects() -> None:
    class Shop:
        def price(self, of: str) -> int:
            """What it costs."""
            return len(of)

    assert called(Shop().price, '{"of": "tea"}') == "3"
