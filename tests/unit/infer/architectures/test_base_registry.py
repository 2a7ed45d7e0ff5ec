"""Families are found by the name of their architecture, and each is imported on first use."""

import pytest

from hybrid.infer.architectures import FAMILIES


@pytest.mark.parametrize("name", FAMILIES)
def test_a_name_is_its_familys(name: str) -> None:
    assert FAMILIES[name].name == name and FAMILIES[name] is FAMILIES[name]


def test_an_unknown_name() -> None:
    assert "nobody" not in FAMILIES and FAMILIES.get("nobody") is None
