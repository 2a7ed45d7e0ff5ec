"""Some rows of a product of parameters in which every pair of values of two parameters occurs: a covering array.

    pairwise(TYPES, SHAPES, TARGETS)    a few more rows than the two longest have pairs

Most faults need two values that meet, and a product has each pair of them many times.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations, product
from typing import Any

import pytest


def pairwise(*parameters: Iterable[Any]) -> list[tuple[Any, ...]]:
    """The same rows whenever the parameters are the same: each begins with a pair that no row has, and goes on with
    values that make most of such pairs with those before, of these the least used."""
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
    """Each value of the first with one of each of the others: all are there, where they are no more."""
    return [(value, *(other[i % len(other)] for other in others)) for i, value in enumerate(first)]


def mostly_long(chosen: Iterable[tuple[Any, ...]], *parameters: Iterable[Any]) -> Iterator[Any]:
    """The product of parameters for pytest: rows that are not chosen belong to the long suite's matrices."""
    short = set(chosen)
    for row in product(*parameters):
        yield pytest.param(*row, marks=() if row in short else pytest.mark.matrix)


def _pair(one: tuple[int, int], other: tuple[int, int]) -> tuple[tuple[int, int], tuple[int, int]]:
    return (one, other) if one < other else (other, one)
