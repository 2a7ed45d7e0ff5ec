"""Calls that write parameters one by one, in XML or as Python does: those that the schema names, in its order.

XML: required parameters must stand there, others may. Python: required ones first. Parameters that only
additionalProperties or patternProperties would allow are never drawn: nothing says how their names are written.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hybrid.quant.ggml.errors import UsageError, shown

from .format import PythonCall, XmlCall
from .lark import ANY, Rules, literal, without
from .marks_in_text import tokens
from .parameter_types import STRING, types_of
from .text_values import ANNOTATIONS, TextValues, without_strings

if TYPE_CHECKING:
    from .tools import Tool

_SAID = ANNOTATIONS | {"type", "properties", "required", "additionalProperties", "patternProperties"}
_SHARED = ("$defs", "definitions", "$schema")  # what references in a parameter's schema go to
_WORDS = {"boolean": ("True", "False"), "null": ("None",)}  # of Python, beside JSON's


@dataclass(frozen=True)
class Parameter:
    key: str
    schema: Any
    is_required: bool
    types: frozenset[str]


class ParameterRules:
    """Writes the rules of one tool's calls.

    text  bodies of terminals and tokens of a mark
    part  the name of a schema in the grammar, given the tool, the schema, and where it stands
    """

    def __init__(
        self,
        rules: Rules,
        tool: "Tool",
        text: Callable[[str], list[str | int]],
        part: "Callable[[Tool, Any, str], str]",
    ) -> None:
        self._rules, self._tool, self._text, self._part = rules, tool, text, part
        self._values = TextValues(tool.parameters)
        self._parameters = self._found()

    def all(self, call: XmlCall | PythonCall) -> str:
        """From behind what opens the parameters to behind the last character that is no mark."""
        return self._python() if isinstance(call, PythonCall) else self._xml(call)

    def _found(self) -> list[Parameter]:
        schema = self._values.resolved(self._tool.parameters)
        unknown = schema.keys() - _SAID
        if unknown:
            raise self._refusal(f"{min(unknown)} cannot be held to: this model's calls write parameters one by one.")
        known, required = schema.get("properties", {}), schema.get("required", [])
        known = {**known, **{key: schema.get("additionalProperties", True) for key in required if key not in known}}
        if any(known[key] is False for key in required):
            raise self._refusal("it requires what it forbids.")
        return [
            Parameter(key, value, key in required, types_of(self._tool, key))
            for key, value in known.items()
            if value is not False
        ]

    # --- XML ---
    def _xml(self, call: XmlCall) -> str:
        made = []
        for parameter in self._parameters:
            key = parameter.key
            if key != key.strip() or not key or any(mark in key for mark in [*tokens(call.after_key), "\n"]):
                raise self._refusal(f"the name of {shown(key)} cannot be told from this model's marks.", key)
            begin = self._rules.row([*self._text(call.before_key), literal(key), *self._text(call.after_key)])
            body = f"{begin} {self._xml_value(parameter, call)}"
            made.append(body if parameter.is_required else f"({body})?")
        return " ".join(made)

    def _xml_value(self, parameter: Parameter, call: XmlCall) -> str:
        """A value and the mark behind it."""
        try:
            text = self._values.terminal(parameter.schema, parameter.types)
        except UsageError as error:
            raise self._refusal(str(error), parameter.key) from None
        choices = [] if text is None else [self._up_to(text, call.after_value)]
        schema = parameter.schema
        if parameter.types != STRING and (text is None or not self._values.covers(schema, parameter.types)):
            schema = without_strings(schema, parameter.types) if "string" in parameter.types else schema
            choices.append(f"@{self._schema(parameter, schema)} {self._rules.row(self._text(call.after_value))}")
        if not choices:
            raise self._refusal("nothing fits it.", parameter.key)
        return self._rules.rule(" | ".join(choices))

    def _up_to(self, text: str, mark: str) -> str:
        """A text that does not have the mark in it, and the mark."""
        bare = f"(({text}) & {ANY}{without(tokens(mark)[:1])})"
        before, *rest = self._text(mark)
        if isinstance(before, int):
            value = self._rules.terminal(bare)
            return f"{value}? {self._rules.row([before, *rest])}"
        value = self._rules.rule(self._rules.terminal(f"{bare} {before}"), "" if rest else "[lazy]")
        return f"{value} {self._rules.row(rest)}"

    # --- Python ---
    def _python(self) -> str:
        first = [self._python_argument(p) for p in self._parameters if p.is_required]
        others = [self._python_argument(p) for p in self._parameters if not p.is_required and p.key.isidentifier()]
        comma, closing = self._rules.terminal('"," " "?'), self._rules.terminal('")"')
        if first:
            return f" {comma} ".join(first) + "".join(f" ({comma} {other})?" for other in others) + f" {closing}"
        rests: Sequence[str] = [""]
        for other in reversed(others):
            rests = [self._rules.rule(f"({comma} {other})? {rests[0]}"), *rests]
        choices = [f"{other} {rest}" for other, rest in zip(others, rests[1:], strict=True)]
        return f"({' | '.join(choices)})? {closing}" if choices else closing

    def _python_argument(self, parameter: Parameter) -> str:
        if not re.fullmatch(r"\w+", parameter.key):
            raise self._refusal("its name is none that Python can write.", parameter.key)
        value = f"@{self._schema(parameter, parameter.schema)}"
        said = set(parameter.schema) - ANNOTATIONS if isinstance(parameter.schema, dict) else set()
        if said == {"type"}:
            words = [word for kind, names in _WORDS.items() if kind in parameter.types for word in names]
            value = " | ".join([value, *map(literal, words)])
        return f"{self._rules.terminal(literal(f'{parameter.key}='))} {self._rules.rule(value)}"

    # --- both ---
    def _schema(self, parameter: Parameter, schema: Any) -> str:
        if isinstance(schema, dict):
            schema = {**{key: self._tool.parameters[key] for key in _SHARED if key in self._tool.parameters}, **schema}
        return self._part(self._tool, schema, f"/properties/{parameter.key}")

    def _refusal(self, says: str, key: str | None = None) -> UsageError:
        where = "" if key is None else f" (at /properties/{shown(key)})"
        return UsageError(f"the schema of the tool '{self._tool.name}' cannot be used: {says.rstrip('.')}{where}.")
