"""What the tests know of a family: one module per family, whose ROWS every table of the tests reads.

A new family has all its rows here. Families from before 2026-12 have theirs in the tables themselves: of configs
(random_checkpoints.py), models in float64 (reference/families.py), errors (test_family_errors.py) and others.
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
    """The field `name`, a mapping, of all families."""
    return dict(chain.from_iterable(getattr(rows, name).items() for rows in FAMILY_ROWS))


def listed(name: str) -> tuple[Any, ...]:
    """The field `name`, a sequence, of all families."""
    return tuple(chain.from_iterable(getattr(rows, name) for rows in FAMILY_ROWS))
