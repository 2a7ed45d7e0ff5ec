"""The whole page with a hostile model: its answers are drawn while they grow, stored, and found again."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from browser import Browsing, browsing, chromium  # noqa: F401  fixtures
from hostile_texts import HOSTILE
from http_server import Server
from scripted_chat import WITH_TOOLS, Script, scripted, served

from hybrid.infer import LoadedModel

pytestmark = [pytest.mark.exhaustive, pytest.mark.page]
PER_ANSWER = 11  # texts


@pytest.fixture(scope="module")
def server(files: dict[str, Path]) -> Iterator[Server]:
    with (
        LoadedModel.load(files["q8_0"], n_ctx=8192, n_seq_max=4, checkpoint_budget=64 << 20) as model,
        closing(served(model, WITH_TOOLS)) as server,
    ):
        yield server


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Iterator[Script]:
    with scripted(monkeypatch) as script:
        yield script


def said(answer: str, page: Any, script: Script) -> Any:
    """Let the model say the answer; return its message when complete."""
    script.say(answer)
    n = page.locator(".message.assistant").count()
    page.locator("#question").fill("Go on")
    page.keyboard.press("Enter")
    message = page.locator(".message.assistant").nth(n)
    message.get_by_text("the very end").wait_for()
    return message


@pytest.mark.slow
def test_answers_that_mean_harm(browsing: Browsing, server: Server, script: Script) -> None:
    page = browsing.open(server)
    asked: list[str] = []
    page.evaluate("window.ran = 0")
    texts = [text for text in HOSTILE if "\u0000" not in text]  # a model has no token for that
    for begin in range(0, len(texts), PER_ANSWER):
        answer = "\n\n".join(texts[begin : begin + PER_ANSWER])
        message = said(f"{answer}\n\nthe very end", page, script)
        page.on("request", lambda request: asked.append(request.url))
        shown = message.locator(".prose")
        assert shown.locator("script, iframe, svg, math, form, input, style, object, embed, link, meta").count() == 0
        assert shown.locator("[id], [style], [onclick], [onerror], [onload], img:not([src^=data])").count() == 0
    assert page.evaluate("window.ran") == 0
    assert [url for url in asked if not url.startswith(server.url)] == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
