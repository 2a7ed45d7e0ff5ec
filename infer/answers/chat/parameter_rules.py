"""Rules of calls that write the parameters of a schema one by one, in its order, in XML or Python.

XML: required parameters must occur, others may. Python: required ones come first. Parameters that only
additionalProperties or patternProperties allow are never sampled: nothing says how to write their names. `notes` say
which constraints cannot be enforced.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hybrid.quant.ggml.errors import shown

from ..constraints.relaxed import CONSTRAINING
from .format import PythonCall, XmlCall
from .lark import ANY, Rules, literal, without
from .marks_in_text import tokens
from .parameter_types import STRING, parameters_of, types_of
from .text_values import TextValues, without_strings

if TYPE_CHECKING:
    from .tools import Tool

_SHARED = ("$defs", "definitions", "$schema")  # targets of references in a parameter's schema
_WORDS = {"boolean": ("True", "False"), "null": ("None",)}  # Python's, beside JSON's


@dataclass(frozen=True)
class Parameter:
    key: str
    schema: Any
    is_required: bool
    types: frozenset[str]


class ParameterRules:
    """Writes the rules of one tool's calls.

    text  splits a tag into bodies of terminals and tokens
    part  the name of a schema in the grammar, given the tool, the schema, and its place
    """

    def __init__(
        self,
        rules: Rules,
        tool: "Tool",
        text: Callable[[str], list[str | int]],
        part: "Callable[[Tool, Any, str], str]",
    ) -> None:
        self._rules, self._tool, self._text, self._part = rules, tool, text, part
        self.notes: list[str] = []
        self._values = TextValues(tool.parameters, self._note)
        self._parameters = self._found()

    def all(self, call: XmlCall | PythonCall) -> str:
        """All parameters: from the end of the opening tag to the beginning of the closing tag."""
        return self._python() if isinstance(call, PythonCall) else self._xml(call)

    def _found(self) -> list[Parameter]:
        found = parameters_of(self._tool.parameters)
        if found.are_of_some:
            self._note("anyOf", "", "a call may have parameters of several of its schemas")
        rest = self._tool.parameters.get("additionalProperties", True)
        known = {**found.known, **{key: rest for key in found.required if key not in found.known}}
        for key in found.required:
            if known[key] is False:
                self._note("required", key, "no value fits it, any is accepted")
                known[key] = True
        return [
            Parameter(key, value, key in found.required, types_of(self._tool, key, found))
            for key, value in known.items()
            if value is not False
        ]

    # --- XML ---
    def _xml(self, call: XmlCall) -> str:
        made = []
        for parameter in self._parameters:
            key = parameter.key
            if key != key.strip() or not key or any(mark in key for mark in [*tokens(call.after_key), "\n"]):
                self._note("properties", key, "its name cannot be told from tags, it is left out")
                continue
            begin = self._rules.row([*self._text(call.before_key), literal(key), *self._text(call.after_key)])
            body = f"{begin} {self._xml_value(parameter, call)}"
            made.append(body if parameter.is_required else f"({body})?")
        return " ".join(made)

    def _xml_value(self, parameter: Parameter, call: XmlCall) -> str:
        """A value and the tag after it."""
        text = self._values.terminal(parameter.schema, parameter.types, parameter.key)
        choices = [] if text is None else [self._up_to(text, call.after_value)]
        schema = parameter.schema
        if parameter.types != STRING and (text is None or not self._values.covers(schema, parameter.types)):
            schema = without_strings(schema, parameter.types) if "string" in parameter.types else schema
            choices.append(f"@{self._schema(parameter, schema)} {self._rules.row(self._text(call.after_value))}")
        if not choices:
            self._note("enum", parameter.key, "no string fits it, any is accepted")
            choices = [self._up_to(ANY, call.after_value)]
        return self._rules.rule(" | ".join(choices))

    def _up_to(self, text: str, mark: str) -> str:
        """A text that does not contain the tag, followed by the tag."""
        bare = f"(({text}) & {ANY}{without(tokens(mark)[:1])})"
        before, *rest = self._text(mark)
        if isinstance(before, int):
            value = self._rules.terminal(bare)
            return f"{value}? {self._rules.row([before, *rest])}"
        value = self._rules.rule(self._rules.terminal(f"{bare} {before}"), "" if rest else "[lazy]")
        return f"{value} {self._rules.row(rest)}"

    # --- Python ---
    def _python(self) -> str:
        written = []
        for parameter in self._parameters:
            if parameter.key.isidentifier():
                written.append((parameter.is_required, self._python_argument(parameter)))
            else:
                self._note("properties", parameter.key, "Python cannot write its name, it is left out")
        first = [argument for is_required, argument in written if is_required]
        others = [argument for is_required, argument in written if not is_required]
        comma, closing = self._rules.terminal('"," " "?'), self._rules.terminal('")"')
        if first:
            return f" {comma} ".join(first) + "".join(f" ({comma} {other})?" for other in others) + f" {closing}"
        rests: Sequence[str] = [""]
        for other in reversed(others):
            rests = [self._rules.rule(f"({comma} {other})? {rests[0]}"), *rests]
        choices = [f"{other} {rest}" for other, rest in zip(others, rests[1:], strict=True)]
        return f"({' | '.join(choices)})? {closing}" if choices else closing

    def _python_argument(self, parameter: Parameter) -> str:
        value = f"@{self._schema(parameter, parameter.schema)}"
        said = set(parameter.schema) & CONSTRAINING if isinstance(parameter.schema, dict) else set()
        if said == {"type"}:
            words = [word for kind, names in _WORDS.items() if kind in parameter.types for word in names]
            value = " | ".join([value, *map(literal, words)])
        return f"{self._rules.terminal(literal(f'{parameter.key}='))} {self._rules.rule(value)}"

    # --- both ---
    def _schema(self, parameter: Parameter, schema: Any) -> str:
        if isinstance(schema, dict):
            schema = {**{key: self._tool.parameters[key] for key in _SHARED if key in self._tool.parameters}, **schema}
        return self._part(self._tool, schema, f"/properties/{parameter.key}")

    def _note(self, what: str, where: str, instead: str) -> None:
        place = f"parameters.{shown(where, 120)}" if where else "parameters"
        self.notes.append(
            f"tool `{self._tool.name}`: `{what}` at {place} cannot be enforced in this model's calls: {instead}"
        )
