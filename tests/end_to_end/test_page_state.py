"""The page of the server's state in a browser: idle, busy, with a key, without a server."""

import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import Browsing, browsing, chromium  # noqa: F401  fixtures
from http_server import Server, serving, until

from hybrid.infer import LoadedModel

pytestmark = [pytest.mark.exhaustive, pytest.mark.page]

PROMPT = "State space models keep what they have read in a state of one size. " * 12


@pytest.fixture(scope="module")
def model(files: dict[str, Path]) -> Iterator[LoadedModel]:
    with LoadedModel.load(files["q8_0"], n_ctx=2048, n_seq_max=4, checkpoint_budget=8 << 20) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def server(model: LoadedModel) -> Iterator[Server]:
    with serving(model) as server:
        yield server


def complete(server: Server, **more: Any) -> Any:
    body = {"prompt": PROMPT, "max_tokens": 8, "ignore_eos": True, **more}
    return server.http.post("/v1/completions", json=body, headers={"Authorization": "Bearer secret"}).json()


def test_idle_and_then_what_was_done(browsing: Browsing, server: Server) -> None:
    page = browsing.open(server, "state")
    page.locator("#status", has_text="idle").wait_for()
    assert page.locator("#model").inner_text() == "tiny" and page.title() == "tiny: state"
    assert "context 2\u202f048" in page.locator("#about").inner_text()
    assert page.locator("#streams-note").inner_text() == "4 places, all free"
    assert page.locator("#places span").count() == 4
    first = complete(server)["usage"]["prompt_tokens"]
    page.locator("#why-list", has_text="nothing known begins like them").wait_for()
    complete(server)
    page.locator("#reused", has_text=re.compile(rf"of {2 * first} tokens")).wait_for()
    assert page.locator("#sums", has_text="16").is_visible()
    page.locator("#cache-list", has_text="keys and values").wait_for()
    assert re.search(r"checkpoints\s+\d", page.locator("#cache-list").inner_text())


def test_streams_while_they_run(browsing: Browsing, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer stops between two tokens while the page is checked."""
    go, draw = threading.Event(), server.service.batcher.step

    def step() -> Any:
        if any(len(job.result.ids) >= 5 for job in server.service.running):
            go.wait(60)
        return draw()

    monkeypatch.setattr(server.service.batcher, "step", step)
    asking = threading.Thread(target=complete, args=(server,), kwargs={"max_tokens": 40})
    asking.start()
    try:
        until(lambda: any(len(job.result.ids) >= 5 for job in server.service.running))
        page = browsing.open(server, "state")
        stream = page.locator(".stream")
        stream.wait_for()
        assert page.locator("#streams-note").inner_text() == "1 of 4 places are taken"
        assert re.search(r"\d+ drawn", stream.inner_text()) and "reused" in stream.inner_text()
        page.locator("#status", has_text="answering").wait_for()
    finally:
        go.set()
        asking.join()
    page.locator("#status", has_text="idle").wait_for()
    assert page.locator(".stream").count() == 0


def test_a_full_cache(browsing: Browsing, server: Server) -> None:
    for index in range(24):
        complete(server, prompt=f"{index} {PROMPT * 4}", max_tokens=1)
    page = browsing.open(server, "state")
    page.locator("#cache", has_text=re.compile("of 8.0 MiB|full")).wait_for()
    share = page.locator("#cache-bar span").evaluate_all("(all) => all.reduce((n, e) => n + e.clientWidth, 0)")
    whole = page.locator("#cache-bar .bar").evaluate("(e) => e.clientWidth")
    assert 0.8 * whole < share <= whole + 2


def test_a_key(browsing: Browsing, model: LoadedModel) -> None:
    browsing.expects("401")
    with serving(model, keys=("secret",)) as locked:
        page = browsing.open(locked, "state")
        page.get_by_label("This server asks for a key").fill("wrong")
        page.keyboard.press("Enter")
        page.wait_for_timeout(200)
        assert page.locator("#state").is_hidden()
        page.get_by_label("This server asks for a key").fill("secret")
        page.keyboard.press("Enter")
        page.locator("#status", has_text="idle").wait_for()
        assert page.locator("#key-form").is_hidden()
        page.reload()
        page.locator("#status", has_text="idle").wait_for()
        assert page.evaluate("[localStorage.length, document.cookie]") == [0, ""], "kept for this tab only"
        other = browsing.visit(page.context, locked, "state")
        other.locator("#key-form").wait_for()


def test_without_a_server(browsing: Browsing, model: LoadedModel) -> None:
    browsing.expects("ERR_CONNECTION_REFUSED", "Failed to load resource")
    with serving(model) as gone:
        page = browsing.open(gone, "state")
        page.locator("#status", has_text="idle").wait_for()
    page.locator("#status", has_text="not reached").wait_for()
    assert page.locator("#state.stale").is_visible(), "what was known stays, and is shown as old"


def test_slots_that_are_not_shown(browsing: Browsing, model: LoadedModel) -> None:
    browsing.expects("501")
    with serving(model, slots=False) as server:
        page = browsing.open(server, "state")
        page.locator("#streams-note", has_text="--no-slots").wait_for()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_a_phone(browsing: Browsing, server: Server, scheme: str) -> None:
    page = browsing.open(server, "state", viewport={"width": 360, "height": 740}, color_scheme=scheme)
    page.locator("#status", has_text="idle").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    ink, ground = page.evaluate(
        "[getComputedStyle(document.body).color, getComputedStyle(document.body).backgroundColor]"
    )
    light = [sum(map(int, re.findall(r"\d+", colour)[:3])) for colour in (ink, ground)]
    assert (light[0] < light[1]) == (scheme == "light")


def test_nobody_is_asked_while_nobody_looks(browsing: Browsing, server: Server) -> None:
    page = browsing.open(server, "state")
    page.locator("#status", has_text="idle").wait_for()
    page.evaluate("""() => {
      Object.defineProperty(document, "visibilityState", { value: "hidden", configurable: true });
      document.dispatchEvent(new Event("visibilitychange"));
    }""")
    page.wait_for_timeout(300)  # for requests that are under way
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.wait_for_timeout(1500)
    assert asked == []
    page.evaluate("""() => {
      Object.defineProperty(document, "visibilityState", { value: "visible", configurable: true });
      document.dispatchEvent(new Event("visibilitychange"));
    }""")
    until(lambda: page.wait_for_timeout(50) or asked)
