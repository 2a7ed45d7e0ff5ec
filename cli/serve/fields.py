"""What the bodies of several routes may hold.

A field that a body does not have is refused by name; an `Ignored` one is taken and has no effect. One that is null is
absent, since clients send null for what they leave to the server; an integer may be written 16.0.
Ranges are not written here: `SamplingParams` and `Drawing` know them, and say them the same way everywhere.
"""

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


class StreamOptions(Strict):
    """What a stream tells beside the answer."""

    include_usage: bool = False
    include_obfuscation: Ignored


class CacheFields(Strict):
    """What becomes of a conversation after its answer."""

    keep: Annotated[
        bool | None,
        Field(
            description="true: prompt and answer are not given up for others, until false or DELETE says so. All that "
            "is kept in this way may use half of --checkpoint-budget; more is refused."
        ),
    ] = None


class AnswerFields(Strict):
    """What every kind of answer takes: OpenAI's fields, and llama-server's samplers."""

    model: str | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    n: Annotated[int, Field(ge=1, le=64)] = 1
    max_tokens: Annotated[int, Field(ge=0)] | None = None
    stop: str | list[str] | None = None
    seed: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repeat_penalty: float | None = None
    repeat_last_n: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    ignore_eos: bool = False
    speculate: bool | None = None
    cache: CacheFields | None = None
    user: Ignored
    metadata: Ignored
    store: Ignored
    service_tier: Ignored
