"""What `GET /` answers to whom."""

import pytest

from hybrid.cli.serve.ollama.status import takes_pages


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [(None, True), ("", True), ("*/*", True), ("text/html,application/xhtml+xml;q=0.9,*/*;q=0.8", True),
     ("TEXT/HTML; charset=utf-8", True), ("text/*", True), ("application/json", False),
     ("application/json, text/plain", False), ("text/htmlx", False)],
)  # fmt: skip
def test_pages_are_for_browsers(accept: str | None, wanted: bool) -> None:
    assert takes_pages(accept) == wanted
