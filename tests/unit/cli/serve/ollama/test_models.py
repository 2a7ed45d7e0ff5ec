"""Names, numbers and times as ollama writes them."""

import re
from types import SimpleNamespace
from typing import Any

import pytest

from hybrid.cli.serve.ollama.models import human, name_in_answers, tagged, timestamp


@pytest.mark.parametrize(
    ("name", "wanted"),
    [("tiny", "tiny:latest"), ("tiny:latest", "tiny:latest"), ("org/name:Q4_K_M", "org/name:Q4_K_M"),
     ("org/name", "org/name:latest"), ("host:5000/name", "host:5000/name:latest")],
)  # fmt: skip
def test_tags(name: str, wanted: str) -> None:
    assert tagged(name) == wanted == tagged(wanted)


def test_names_in_answers() -> None:
    served: Any = SimpleNamespace(name="tiny")
    assert [name_in_answers(served, asked) for asked in ("tiny", "tiny:latest", "other", None)] == [
        "tiny", "tiny:latest", "tiny:latest", "tiny:latest"
    ]  # fmt: skip


def test_numbers_and_times() -> None:
    numbers = [7_615_616_512, 494_032_768, 11_404_832, 1_500, 999, 1_000_000_000_000]
    assert [human(n) for n in numbers] == ["7.6B", "494.03M", "11.40M", "1.50K", "999", "1.0T"]
    assert timestamp(1_700_000_000.5) == "2023-11-14T22:13:20.500000Z"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{6})?Z", timestamp())
