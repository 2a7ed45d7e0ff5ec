"""Python functions as tools: their descriptions for the model, and carrying out calls."""

import inspect
import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from operator import or_
from types import UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NotRequired,
    Required,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from hybrid.infer.answers.chat.tools import Tool, ToolCall, tools_of
from hybrid.quant.ggml.errors import UsageError, shown

# parameters in docstrings: `name: ...`, `name (type): ...`, `:param name: ...`, `name  ...` with two spaces
_LINE = r"^\s*(?::param\s+)?{name}(?:\s*\([^)\n]*\))?(?:\s*:\s|\s\s+)\s*(?P<text>\S.*)$"


class Functions:
    """The tools of a chat: Python functions, and descriptions of other tools in OpenAI's format."""

    def __init__(self, given: Sequence[Callable[..., Any] | Mapping[str, Any]]) -> None:
        """UsageError: one of them cannot be a tool."""
        self.given = tuple(given)
        self._models: dict[str, tuple[Callable[..., Any], Any]] = {}
        entries = [dict(one) if isinstance(one, Mapping) else self._described(one) for one in self.given]
        self.tools: tuple[Tool, ...] = tuple(tools_of(entries))

    def has(self, calls: Sequence[ToolCall]) -> bool:
        """Whether all these calls name Python functions."""
        return all(call.name in self._models for call in calls)

    def call(self, call: ToolCall) -> str:
        """The function's result as text for the model: a string unchanged, other values as JSON; or the error.

        An exception in the function becomes a text for the model, which may try something else.
        """
        from pydantic import ValidationError
        from pydantic_core import to_json

        function, arguments = self._models[call.name]
        try:
            checked = arguments.model_validate_json(call.arguments or "{}")
        except ValidationError as error:
            wrong = "; ".join(f"{'.'.join(map(str, e['loc'])) or 'arguments'}: {e['msg']}" for e in error.errors())
            return f"error: {wrong}"
        values = {field.alias: getattr(checked, name) for name, field in arguments.model_fields.items()}
        try:
            result = function(**values)
        except Exception as error:
            return f"error: {type(error).__name__}: {error}"
        return result if isinstance(result, str) else to_json(result, fallback=str).decode()

    def _described(self, function: Callable[..., Any]) -> dict[str, Any]:
        if not callable(function):
            raise UsageError(f"tools: {shown(repr(function))} is neither a function nor the description of one.")
        name = getattr(function, "__name__", type(function).__name__)
        if inspect.iscoroutinefunction(function):
            raise UsageError(f"tools: {shown(name)} is asynchronous, expected a function that returns its result.")
        arguments = _arguments(name, function)
        self._models[name] = (function, arguments)
        schema = _schema(arguments.model_json_schema)
        schema.pop("title", None)
        for one in schema.get("properties", {}).values():
            one.pop("title", None)
        about = inspect.getdoc(function) or ""
        described = {"name": name, "description": about.split("\n\n")[0].strip(), "parameters": schema}
        return {"type": "function", "function": json.loads(json.dumps(described))}


def _arguments(name: str, function: Callable[..., Any]) -> Any:
    """A pydantic class with a field per parameter of the function."""
    from pydantic import ConfigDict, Field, TypeAdapter, create_model
    from pydantic.errors import PydanticUserError

    about = inspect.getdoc(function) or ""
    try:
        hints, parameters = get_type_hints(function, include_extras=True), inspect.signature(function).parameters
    except (NameError, TypeError, ValueError) as error:
        raise UsageError(f"tools: the parameters of {shown(name)} cannot be read: {shown(error)}.") from None
    fields: dict[str, Any] = {}
    for i, (key, parameter) in enumerate(parameters.items()):
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise UsageError(f"tools: {shown(name)} takes {parameter}, expected parameters with names.")
        said = re.search(_LINE.format(name=re.escape(key)), about, re.MULTILINE)
        default = ... if parameter.default is parameter.empty else parameter.default
        # with an alias, since a parameter may have a name that pydantic reserves
        about_it = said["text"] if said else None
        hint = hints.get(key, str)
        try:
            known = _known(hint)
            _schema(TypeAdapter(known).json_schema)
        except (PydanticUserError, NameError):
            raise UsageError(
                f"tools: {shown(name)} takes {shown(inspect.formatannotation(hint))} as {shown(key)}, which JSON "
                "cannot describe. Annotate it with numbers, str, list, dict, a dataclass or a model of pydantic, "
                "or describe the tool in a dictionary."
            ) from None
        fields[f"p{i}"] = (known, Field(default, alias=key, description=about_it))
    return create_model(name, __config__=ConfigDict(extra="forbid"), **fields)


def _schema(make: Callable[..., dict[str, Any]]) -> dict[str, Any]:
    """The JSON schema that a pydantic method makes. Defaults that are not JSON are left out."""
    from pydantic.errors import PydanticInvalidForJsonSchema
    from pydantic.json_schema import GenerateJsonSchema

    class Schemas(GenerateJsonSchema):
        ignored_warning_kinds = frozenset({"skipped-choice", "non-serializable-default"})  # type: ignore[assignment]

        def is_subclass_schema(self, schema: Any) -> Any:
            raise PydanticInvalidForJsonSchema("a class is no JSON")

    return make(schema_generator=Schemas)


def _known(hint: Any, within: tuple[Any, ...] = ()) -> Any:
    """The annotation in a form that pydantic accepts: before Python 3.12 it refuses `typing.TypedDict`."""
    if sys.version_info >= (3, 12) or hint in within:
        return hint
    if is_typeddict(hint):
        return _typed_dict(hint, (*within, hint))
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return Annotated[(_known(args[0], within), *args[1:])]
    known = tuple(_known(arg, within) for arg in args) if origin is not Literal else args
    if known == args:
        return hint
    return reduce(or_, known) if origin in (Union, UnionType) else origin[known]


def _typed_dict(given: Any, within: tuple[Any, ...]) -> Any:
    """The same TypedDict, made with typing_extensions, which pydantic depends on."""
    from typing_extensions import TypedDict

    fields = {}
    for key, hint in get_type_hints(given, include_extras=True).items():
        bare = get_args(hint)[0] if get_origin(hint) in (Required, NotRequired) else hint
        known = _known(bare, within)
        fields[key] = known if key in given.__required_keys__ else NotRequired[known]
    return TypedDict(given.__name__, fields)  # type: ignore[operator]
