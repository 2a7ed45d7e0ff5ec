"""Covering arrays: all pairs, and few rows."""

from itertools import combinations, product

import pytest
from pairwise import in_turn, mostly_long, pairwise


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


def test_in_turn() -> None:
    rows = in_turn("abcd", [1, 2, 3], "xy")
    assert rows == [("a", 1, "x"), ("b", 2, "y"), ("c", 3, "x"), ("d", 1, "y")]
    marked = {param.values: bool(param.marks) for param in mostly_long(rows, "abcd", [1, 2, 3], "xy")}
    assert len(marked) == 24 and [row for row, is_long in marked.items() if not is_long] == rows


def test_two_parameters_have_their_product() -> None:
    assert sorted(pairwise("ab", range(3))) == sorted(product("ab", range(3)))
