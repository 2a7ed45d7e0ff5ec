"""Tools whose schemas cannot be compiled, held to wider ones.

tools.py relaxes the keywords that the compiler does not have when it reads a tool. This module handles schemas that
only the compiler refuses: they are too large, or nothing fits them. No tool is refused for its schema.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from hybrid.quant.ggml.errors import UsageError

from ..constraints.widened import ANY_OBJECT
from .parameter_types import parameters_of
from .tools import Tool

if TYPE_CHECKING:
    from ..constraints import Grammar
    from ..constraints.forms import Forms

MOST_FAILURES = 64  # tools, and groups of them, that cannot be compiled before the rest is taken for such

Makes = Callable[[Sequence[Tool]], "Grammar | None"]
"""The grammar of answers with calls of some tools. UsageError: it cannot be made."""


def wider_tools(tools: Sequence[Tool], make: Makes, forms: "Forms") -> Iterator[list[Tool]]:
    """The tools with wider and wider schemas, until some can be compiled together. make: for some of the tools."""
    n_failures = 0

    def compiles(some: Sequence[Tool]) -> bool:
        nonlocal n_failures
        if n_failures >= MOST_FAILURES:
            return False
        try:
            grammar = make(some)
            is_good = grammar is None or forms.fault(grammar) is None
        except UsageError:
            is_good = False
        n_failures += not is_good
        return is_good

    def wider(some: Sequence[Tool]) -> list[Tool]:
        if compiles(some):
            return [*some]
        if len(some) > 1:
            half = len(some) // 2
            return [*wider(some[:half]), *wider(some[half:])]
        if n_failures < MOST_FAILURES and compiles([made := _widened(some[0], forms)]):
            return [made]
        return [_names_alone(some[0])]

    yield wider(tools)
    yield [_names_alone(tool) for tool in tools]
    yield [_noted(replace(tool, parameters=ANY_OBJECT), "calls have any object for arguments") for tool in tools]


def _widened(tool: Tool, forms: "Forms") -> Tool:
    try:
        schema, notes = forms.widened(tool.parameters)
    except UsageError as error:  # it is nested too deep, or too long
        return _noted(_names_alone(tool), str(error))
    return _noted(replace(tool, parameters={**schema, "type": "object"}), *notes)


def _names_alone(tool: Tool) -> Tool:
    known = parameters_of(tool.parameters)
    properties = dict.fromkeys([*known.known, *known.required], True)
    schema = {"type": "object", "properties": properties, "required": known.required}
    return _noted(replace(tool, parameters=schema), "calls are held to the names of its parameters alone")


def _noted(tool: Tool, *says: str) -> Tool:
    notes = tuple(f"tool `{tool.name}`: {note}" for note in says)
    return replace(tool, notes=(*tool.notes, *(note for note in notes if note not in tool.notes)))
