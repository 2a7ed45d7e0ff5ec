"""No dataclass compares arrays: `==` of two such objects raises an exception, or says nothing.

`list.remove`, `in`, `deque.remove` and `dict` keys also compare.
"""

import collections.abc
import dataclasses
import importlib
import pkgutil
import sys
import typing

import numpy as np
import pytest

PACKAGES = ("hybrid.cli", "hybrid.convert", "hybrid.infer", "hybrid.quant")


def modules() -> list[str]:
    """All modules of the packages. `__main__` runs a command when it is imported."""
    names = []
    for package in map(importlib.import_module, PACKAGES):
        names += [package.__name__]
        names += [found.name for found in pkgutil.walk_packages(package.__path__, package.__name__ + ".")]
    return [name for name in names if not name.endswith("__main__")]


def holds_an_array(kind: object) -> bool:
    """Whether a value of this type is an array or holds one. A function that takes arrays holds none."""
    if typing.get_origin(kind) is collections.abc.Callable:
        return False
    if isinstance(kind, type) and issubclass(kind, np.ndarray):
        return True
    return typing.get_origin(kind) is np.ndarray or any(map(holds_an_array, typing.get_args(kind)))


def resolved(kind: object, module: str) -> object:
    """The type of a field. A name that only type checkers know stays a string."""
    if not isinstance(kind, str):
        return kind
    try:
        return eval(kind, dict(vars(sys.modules[module])))
    except NameError:
        return kind


def compares_arrays(kind: type) -> list[str]:
    """The fields of a dataclass that `==` would compare and that hold arrays."""
    if not kind.__dataclass_params__.eq:  # type: ignore[attr-defined]
        return []
    compared = (field for field in dataclasses.fields(kind) if field.compare)
    return [field.name for field in compared if holds_an_array(resolved(field.type, kind.__module__))]


def test_no_dataclass_compares_arrays() -> None:
    found = {}
    for name in modules():
        for kind in vars(importlib.import_module(name)).values():
            if isinstance(kind, type) and dataclasses.is_dataclass(kind) and (fields := compares_arrays(kind)):
                found[f"{kind.__module__}.{kind.__qualname__}"] = fields
    assert not found, "these dataclasses need eq=False, or compare=False for the fields: " + str(found)


@dataclasses.dataclass
class Compared:
    n: int
    rows: dict[str, tuple[np.ndarray | None, ...]]


@dataclasses.dataclass(eq=False)
class NotCompared:
    rows: np.ndarray


@dataclasses.dataclass
class Making:
    make: collections.abc.Callable[[np.ndarray], np.ndarray]


@pytest.mark.parametrize(("kind", "fields"), [(Compared, ["rows"]), (NotCompared, []), (Making, [])])
def test_what_counts(kind: type, fields: list[str]) -> None:
    assert compares_arrays(kind) == fields
