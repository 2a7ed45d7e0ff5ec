"""Tokens coloured by surprise, in a browser: details by mouse and by keyboard, also for characters split into
tokens."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import Browsing, browsing, chromium  # noqa: F401  fixtures
from http_server import Server, serving

from hybrid.infer import LoadedModel

pytestmark = [pytest.mark.exhaustive, pytest.mark.page]

DRAW = """async ([tokens, continues]) => {
  const { colouredTokens } = await import("/page/probabilities.js");
  const style = document.createElement("link");
  style.rel = "stylesheet";
  style.href = "/page/probabilities.css";
  await new Promise((done) => { style.addEventListener("load", done); document.head.append(style); });
  window.chosen = [];
  const options = continues ? { onContinue: (index, one) => window.chosen.push([index, one.token]) } : {};
  const box = document.createElement("div");
  box.id = "box";
  box.append(colouredTokens(tokens, options));
  document.body.replaceChildren(box);
}"""


@pytest.fixture(scope="module")
def server(files: dict[str, Path]) -> Iterator[Server]:
    with LoadedModel.load(files["q8_0"], n_ctx=256, n_seq_max=4) as model, serving(model) as server:
        yield server


def token(text: str | bytes, share: float, *others: tuple[str | bytes, float]) -> dict[str, Any]:
    """A token as the server lists it; the sampled token is also among the top ones."""

    def entry(text: str | bytes, share: float) -> dict[str, Any]:
        raw = text.encode() if isinstance(text, str) else text
        shown = raw.decode("utf-8", "replace")
        return {"token": shown, "logprob": math.log(share) if share else -9999.0, "bytes": list(raw)}

    top = sorted([(text, share), *others], key=lambda one: -one[1])
    return {**entry(text, share), "top_logprobs": [entry(*one) for one in top]}


TOKENS = [
    token("The", 0.97),
    token(" cat", 0.6, (" dog", 0.3), ("\n", 0.0004)),
    token("\n", 0.3),
    token(b"\xe2\x82", 0.1),
    token(b"\xac", 0.02, (b"\xad", 0.9)),
    token("<b>\u202e", 0.0),
]


@pytest.fixture
def page(browsing: Browsing, server: Server) -> Any:
    found = browsing.blank(server)
    found.evaluate(DRAW, [TOKENS, True])
    return found


def test_levels_and_labels(page: Any) -> None:
    tokens = page.locator("#box .token")
    assert tokens.all_text_contents() == ["The", " cat", "↵\n", "", "€", "<b>\u202e"]
    classes = [each.get_attribute("class").split()[1] for each in tokens.all()]
    assert classes == [f"surprise-{level}" for level in (0, 1, 2, 3, 4, 4)]
    titles = [each.get_attribute("title") for each in tokens.all()]
    assert titles[1] == "␣cat: 60 %, likely" == tokens.nth(1).get_attribute("aria-label")
    assert titles[2].startswith("↵: 30 %") and titles[3].startswith("bytes E2 82: 10 %")
    assert titles[5].endswith("< 0.1 %, very surprising")
    # not by colour alone: the more surprising a token, the heavier its underline
    lines = [each.evaluate("(e) => getComputedStyle(e).textDecorationStyle") for each in tokens.all()]
    assert lines[2:5] == ["dotted", "dashed", "solid"]
    assert page.locator("#box b").count() == 0 and page.locator("#box .control").count() == 1


def test_an_alternative_by_mouse(page: Any) -> None:
    page.locator("#box .token").nth(1).click()
    rows = page.locator(".alternatives .alternative")
    assert rows.all_text_contents() == ["␣cat60 %", "␣dog30 %", "↵< 0.1 %"]
    assert rows.nth(0).is_disabled() and rows.nth(0).get_attribute("aria-current") == "true"
    rows.nth(1).click()
    assert page.evaluate("window.chosen") == [[1, " dog"]]
    assert page.locator(".alternatives").count() == 0


def test_an_alternative_by_keyboard(page: Any) -> None:
    page.locator("#box .token").first.focus()
    for key in ("ArrowRight", "End", "ArrowLeft", "Enter"):
        page.keyboard.press(key)
    rows = page.locator(".alternatives .alternative")
    assert rows.nth(0).text_content() == "bytes AD90 %"
    page.keyboard.press("Escape")
    assert page.locator(".alternatives").count() == 0
    assert page.evaluate("document.activeElement.dataset.index") == "4"
    page.keyboard.press("Enter")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert page.evaluate("window.chosen") == [[4, "\ufffd"]]
    assert page.locator("#box .token[tabindex='0']").count() == 1, "one stop of Tab"


def test_a_list_is_in_the_window_and_goes_with_a_click(page: Any) -> None:
    page.set_viewport_size({"width": 360, "height": 300})
    many = [token(f" word{i}", 0.5, *((f" other {j}" * 4, 0.01) for j in range(20))) for i in range(120)]
    page.evaluate(DRAW, [many, False])
    for index in (0, 119):
        page.locator("#box .token").nth(index).click()
        box = page.locator(".alternatives").bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= 360 and box["y"] >= 0 and box["y"] + box["height"] <= 300
        assert page.locator(".alternative:enabled").count() == 0, "without onContinue they are only shown"
        page.mouse.click(355, 5)
        page.locator(".alternatives").wait_for(state="detached")  # the browser reports it a little later


def test_what_a_server_may_leave_out(page: Any) -> None:
    odd = [
        {"token": "a", "logprob": None, "bytes": None},
        {"token": "", "logprob": -0.1, "bytes": [], "top_logprobs": []},
    ]
    page.evaluate(DRAW, [odd, True])
    assert page.locator("#box .token").nth(1).get_attribute("title").startswith("(the end): 90 %")
    page.locator("#box .token").nth(0).click()
    assert page.locator(".alternative").all_text_contents() == ["a< 0.1 %"]
    page.evaluate(DRAW, [[], True])
    assert page.locator("#box .tokens").count() == 1
