"""A family's keys: which are written, and in what order. Damaged files test how they are read."""

from typing import Any

import pytest

from hybrid.quant.ggml.families.hparams import Hparams, key


class Own(Hparams):
    n_wide: int = key("wide.length")
    n_few: int = key("few.length", 3)
    local: tuple[bool, ...] = key("local_pattern", 2, pattern=True)
    others: tuple[bool, ...] = key("others_pattern", 2, pattern=True, first=True)
    windows: tuple[int, ...] = key("hybrid.windows", 0, per_layer=True)


def written(order: str, **values: Any) -> list[tuple[str, Any]]:
    return list(Own.written({"n_layer": 3, **values}.get, order))


def test_order_and_sources() -> None:
    assert written("n_few n_wide=n_other .some.key", n_few=3, n_other=5, **{"some.key": "x"}) == [
        ("few.length", 3),
        ("wide.length", 5),
        ("some.key", "x"),
    ]


@pytest.mark.parametrize(
    ("order", "values", "expected"),
    [
        ("n_few?", {"n_few": 3}, []),
        ("n_few?", {"n_few": 4}, [("few.length", 4)]),
        ("n_few", {}, []),
        (".some.key?", {}, []),
        ("local?", {"local": (True, False, True)}, []),
        ("local?", {"local": (True, True, False)}, [("local_pattern", [True, True, False])]),
        ("local?", {"local": 2}, []),
        ("others?", {"others": (False, True, False)}, []),
        ("others?", {"others": (True, False, True)}, [("others_pattern", [True, False, True])]),
        ("windows?", {"windows": (0, 0, 0)}, []),
        ("windows?", {"windows": [0, 7, 0]}, [("hybrid.windows", [0, 7, 0])]),
    ],
)
def test_what_is_left_out(order: str, values: dict[str, Any], expected: list[tuple[str, Any]]) -> None:
    assert written(order, **values) == expected


def test_mistakes_of_ours() -> None:
    with pytest.raises(AssertionError, match="Own: no n_wide"):
        written("n_wide")
    with pytest.raises(AssertionError, match=r"no \.some\.key"):
        written(".some.key")
    with pytest.raises(KeyError, match="n_fwe"):
        written("n_fwe?", n_few=4)
