"""What people read."""

import pytest

from hybrid.display.lines import count, one_line


@pytest.mark.parametrize(("n", "text"), [(12, "12"), (1_234, "1.2 K"), (11_400_000, "11.4 M"), (3.03e9, "3.03 B")])
def test_counts(n: float, text: str) -> None:
    assert count(n) == text


def test_one_line() -> None:
    assert one_line("a\nb\x1b[0m\tc") == "a b?[0m c"
