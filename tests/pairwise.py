"""Covering arrays: rows of a product of parameters that contain every pair of values of two parameters.

    pairwise(TYPES, SHAPES, TARGETS)    a few more rows than the two longest have pairs

Most faults need two certain values together, and a full product has each pair many times.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations, product
from typing import Any

import pytest


def pairwise(*parameters: Iterable[Any]) -> list[tuple[Any, ...]]:
    """A covering array, always the same for the same parameters. Each row begins with a missing pair. Every further
    value completes as many missing pairs with the values so far as possible; of equally good values the least used is
    taken."""
    values = [list(parameter) for parameter in parameters]
    missing = {
        ((a, i), (b, j)): None
        for (a, of_a), (b, of_b) in combinations(enumerate(values), 2)
        for i in range(len(of_a))
        for j in range(len(of_b))
    }
    used: Counter[tuple[int, int]] = Counter()
    rows = []
    while missing:
        row = dict(next(iter(missing)))
        for a in range(len(values)):
            if a not in row:
                new = [sum(_pair((a, i), other) in missing for other in row.items()) for i in range(len(values[a]))]
                row[a] = max(range(len(new)), key=lambda i: (new[i], -used[a, i]))
        used.update(row.items())
        for pair in combinations(sorted(row.items()), 2):
            missing.pop(pair, None)
        rows.append(tuple(each[row[a]] for a, each in enumerate(values)))
    return rows


def in_turn(first: Iterable[Any], *others: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Each value of the first with one of each of the others. All values occur if no parameter is longer than the
    first."""
    return [(value, *(other[i % len(other)] for other in others)) for i, value in enumerate(first)]


def mostly_long(chosen: Iterable[tuple[Any, ...]], *parameters: Iterable[Any]) -> Iterator[Any]:
    """The product of parameters for pytest. Rows that are not chosen belong to the long suite's matrices."""
    short = set(chosen)
    for row in product(*parameters):
        yield pytest.param(*row, marks=() if row in short else pytest.mark.matrix)


def _pair(one: tuple[int, int], other: tuple[int, int]) -> tuple[tuple[int, int], tuple[int, int]]:
    return (one, other) if one < other else (other, one)
