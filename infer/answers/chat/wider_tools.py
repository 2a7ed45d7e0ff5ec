"""Wider schemas for tools whose own cannot be compiled.

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

MOST_FAILURES = 64  # tools and groups of tools that fail to compile before the rest is assumed to fail

Makes = Callable[[Sequence[Tool]], "Grammar | None"]
"""Makes the grammar of answers with calls of some tools. Raises UsageError if that fails."""


def wider_tools(tools: Sequence[Tool], make: Makes, forms: "Forms") -> Iterator[list[Tool]]:
    """Yields the tools with wider and wider schemas; the caller stops when a list compiles. make: for some tools."""
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
    yield [_noted(replace(tool, parameters=ANY_OBJECT), "any object is accepted as arguments") for tool in tools]


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
    return _noted(replace(tool, parameters=schema), "only the names of its parameters are enforced")


def _noted(tool: Tool, *says: str) -> Tool:
    notes = tuple(f"tool `{tool.name}`: {note}" for note in says)
    return replace(tool, notes=(*tool.notes, *(note for note in notes if note not in tool.notes)))
