"""A file that is skipped without import has no test that the run would execute."""

import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from marks import is_left_out, shuffle

CLUSTER = "import pytest\n\npytestmark = [pytest.mark.cluster, pytest.mark.exhaustive]\n"
ONE_CASE = "import pytest\n\n\n@pytest.mark.cluster\ndef test_it() -> None: ...\n"
PLAIN = "def test_it() -> None: ...\n"


@pytest.mark.parametrize(
    ("text", "expression", "left_out"),
    [
        (CLUSTER, "not long", True),
        (CLUSTER, "not slow and not exhaustive", True),
        (CLUSTER, "not slow", False),
        (CLUSTER, "cluster", False),
        (CLUSTER, "page", True),
        (CLUSTER, "not slow and not long and (kernel or not exhaustive)", False),
        (ONE_CASE, "not long", False),
        (ONE_CASE, "cluster", False),
        (PLAIN, "not long", False),
        (PLAIN, "soak", True),
        (PLAIN, "", False),
    ],
)
def test_what_is_left_out(text: str, expression: str, left_out: bool) -> None:
    assert is_left_out(text, expression) is left_out


def test_a_random_order_keeps_files_together() -> None:
    before: list[Any] = [SimpleNamespace(path=Path(f"{n // 10}.py"), n=n) for n in range(100)]
    orders = []
    for seed in ("1", "1", "2"):
        items = list(before)
        shuffle(items, seed)
        orders.append([item.n for item in items])
    assert orders[0] == orders[1] != orders[2] and sorted(orders[0]) == list(range(100))
    tens = [n // 10 for n in orders[0]]
    assert sum(a != b for a, b in itertools.pairwise(tens)) == 9
