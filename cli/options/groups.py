"""Groups of options: a command's parameter whose type is a dataclass stands for all options that are its fields.

    @takes_groups
    def command(model: ..., *, machine: Machine, sampling: Sampling) -> None:     # has -t, --cpus, --numa, --temp, ...

Groups may be nested. They have no `__eq__` and no `__repr__`: both are unused and would slow every start.
"""

import functools
import inspect
from collections.abc import Callable, Iterator
from dataclasses import is_dataclass
from typing import Any, TypeVar

R = TypeVar("R")


def takes_groups(command: Callable[..., R]) -> Callable[..., R]:
    """The command, with each parameter that is a group replaced by the options of the group."""
    signature = inspect.signature(command)
    parameters = [option for given in signature.parameters.values() for option in _options(given)]

    @functools.wraps(command)
    def wrapped(**values: Any) -> R:
        groups = {
            given.name: _filled(given.annotation, values)
            for given in signature.parameters.values()
            if is_dataclass(given.annotation)
        }
        return command(**values, **groups)

    wrapped.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    wrapped.__annotations__ = {p.name: p.annotation for p in parameters}
    return wrapped


def _options(given: inspect.Parameter) -> Iterator[inspect.Parameter]:
    if not is_dataclass(given.annotation):
        yield given.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        return
    for field in inspect.signature(given.annotation).parameters.values():  # type: ignore[arg-type]
        yield from _options(field)


def _filled(group: Any, values: dict[str, Any]) -> Any:
    """An instance of the group, whose values are removed from `values`."""
    given = inspect.signature(group).parameters.values()
    return group(
        **{p.name: _filled(p.annotation, values) if is_dataclass(p.annotation) else values.pop(p.name) for p in given}
    )
