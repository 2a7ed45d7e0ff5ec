"""How bodies are checked: what a field may be that is not used, and what clients write in other ways."""

from typing import Annotated, Any

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import CoreSchema, PydanticCustomError

from .fail_fast import fail_fast


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
    """Other fields are refused, and so are values of another type."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _as_clients_write_it(cls, given: object) -> object:
        if not isinstance(given, dict):
            return given
        return {name: _whole(value) for name, value in given.items() if value is not None}

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        schema = handler(source)
        fail_fast(schema)
        return schema
