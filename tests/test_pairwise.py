"""Covering arrays: all pairs, and few rows."""

from itertools import combinations, product

import pytest
from pairwise import pairwise


@pytest.mark.parametrize(
    ("sizes", "most"), [((2, 2, 2), 5), ((7, 5, 3), 37), ((3, 5, 7, 2), 38), ((40, 4, 3, 3, 2), 165), ((6, 1, 2), 12)]
)
def test_every_pair_is_in_some_row(sizes: tuple[int, ...], most: int) -> None:
    parameters = [[f"{place}-{i}" for i in range(size)] for place, size in enumerate(sizes)]
    rows = pairwise(*parameters)
    for (a, of_a), (b, of_b) in combinations(enumerate(parameters), 2):
        assert {(row[a], row[b]) for row in rows} == set(product(of_a, of_b))
    print(f"{len(rows)} rows of {sizes}")
    assert len(rows) == len(set(rows)) <= most
    assert rows == pairwise(*parameters)


def test_two_parameters_have_their_product() -> None:
    assert sorted(pairwise("ab", range(3))) == sorted(product("ab", range(3)))
