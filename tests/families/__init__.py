"""What the tests know of a family: one module per family, whose ROWS every table of the tests reads.

A module has the name of the family's file in convert/architectures; a family that shares a file there may have a module
of its own.
"""

from importlib import import_module
from itertools import chain
from pkgutil import iter_modules
from typing import Any

from family_rows import FamilyRows

FAMILY_ROWS: tuple[FamilyRows, ...] = tuple(
    import_module(f"{__name__}.{each.name}").ROWS for each in iter_modules(__path__)
)


def merged(name: str) -> dict[str, Any]:
    """The field `name`, a mapping, of all families. KeyError: two families have the same key."""
    every: dict[str, Any] = {}
    for rows in FAMILY_ROWS:
        own = getattr(rows, name)
        if twice := every.keys() & own.keys():
            raise KeyError(f"{name} of two families: {', '.join(sorted(twice))}")
        every |= own
    return every


def listed(name: str) -> tuple[Any, ...]:
    """The field `name`, a sequence, of all families."""
    return tuple(chain.from_iterable(getattr(rows, name) for rows in FAMILY_ROWS))
