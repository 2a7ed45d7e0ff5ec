"""Checking of bodies: strict on the values of known fields, lenient on unknown fields.

Clients send more fields than any server knows, and want an answer, not an error. `warnings` of a body name the
ignored fields; they go into the `usage` of its answer and into the log.
"""

from collections.abc import Iterator
from functools import cache, cached_property
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import CoreSchema, PydanticCustomError

from hybrid.quant.ggml.errors import shown

from .fail_fast import fail_fast

MOST_WARNINGS = 20  # per body
LONGEST_NAME = 57  # characters of a name that the client chose; `shown` adds three when it cuts
UNKNOWN = "this server has no such field"


def _whole(value: object) -> object:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _nothing(value: object) -> None:
    if not (value is False or value in ([], {})):
        raise PydanticCustomError("unsupported", "this server cannot do that")


Ignored = Annotated[Any, Field(default=None, description="Accepted without effect.")]


Unsupported = Annotated[
    Any,
    BeforeValidator(_nothing),
    Field(default=None, description="Refused, unless it says nothing."),
    WithJsonSchema({"enum": [None, False, [], {}]}),
]


class Strict(BaseModel):
    """Base of schemas. Values of a wrong type are refused; unknown fields are ignored and named in `warnings`."""

    model_config = ConfigDict(extra="allow", strict=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _as_clients_write_it(cls, given: object) -> object:
        if not isinstance(given, dict):
            return given
        known, unknown, kept = _names(cls), 0, dict[str, Any]()
        for name, value in given.items():
            if name in known:
                if value is not None:
                    kept[name] = _whole(value)
            elif unknown <= MOST_WARNINGS and value not in (None, "", [], {}):  # empty values need no warning
                kept[name] = value
                unknown += 1
        return kept

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        schema = handler(source)
        fail_fast(schema)
        return schema

    def unheeded(self) -> Iterator[tuple[str, str]]:
        """Parts of this object without effect on the answer: name of the field ("": the object itself) and reason."""
        for name in self.model_extra or ():
            yield shown(name, LONGEST_NAME), UNKNOWN

    @cached_property
    def warnings(self) -> list[str]:
        """Ignored parts of a body, each once: `messages[].id is ignored: this server has no such field`."""
        found: dict[str, None] = {}
        for place, why in _unheeded(self, ""):
            if len(found) == MOST_WARNINGS:
                return [*found, "more fields are ignored, which are not named here"]
            found[f"{place} is ignored: {why}"] = None
        return list(found)


class PassedOver(Strict):
    """An object that has no effect on the answer, whatever its fields; its type is reported."""

    type: str

    def unheeded(self) -> Iterator[tuple[str, str]]:
        yield "", f"this server does nothing with {shown(self.type, LONGEST_NAME)}"


def other_than(*types: str) -> Any:
    """The type of an object that is ignored: any text except these types, which have schemas."""

    def other(value: str) -> str:
        if value in types:
            raise PydanticCustomError("known", "this type has other fields")
        return value

    return Annotated[str, AfterValidator(other), WithJsonSchema({"type": "string", "not": {"enum": list(types)}})]


@cache
def _names(schema: type[BaseModel]) -> frozenset[str]:
    """The fields of a schema by the names that clients use."""
    return frozenset(field.alias or name for name, field in schema.model_fields.items())


def _unheeded(value: Any, place: str) -> Iterator[tuple[str, str]]:
    """Paths and reasons of ignored parts below `place`. All items of a list share one path, without a number."""
    if isinstance(value, list):
        for one in value:
            if isinstance(one, Strict | list):
                yield from _unheeded(one, f"{place}[]")
    elif isinstance(value, Strict):
        for name, why in value.unheeded():
            yield ".".join(filter(None, (place, name))), why
        for name, held in vars(value).items():  # the fields, in order
            if isinstance(held, Strict | list):
                yield from _unheeded(held, f"{place}.{name}" if place else name)
