"""The chat page by keyboard alone, for a screen reader, on a phone, in light and dark."""

import json

import pytest
from browser import Browsing, browsing, chromium  # noqa: F401  fixtures
from chat_page import PHONE, ChatPage, chat, opened, server  # noqa: F401  fixtures
from http_server import Server
from page_looks import CONTRASTS, NAMELESS, STOPS
from scripted_chat import ADD, CALL, Script

pytestmark = [pytest.mark.exhaustive, pytest.mark.page]

TEXT = """# A heading

Some `code`, a [link](https://example.org) and **more**.

```py
@decorated
def f(x=1):  # one
    return "two"
```

| a | b |
|---|---|
| 1 | 2 |

> quoted
"""


def full(chat: ChatPage, script: Script) -> None:
    """A conversation that shows everything that a conversation can contain."""
    settings = {"tools": json.dumps([ADD])}
    chat.page.evaluate("(kept) => localStorage.setItem('hybrid-settings', JSON.stringify(kept))", settings)
    chat.page.reload()
    chat.answered(script, "Hello", TEXT)
    chat.again(1, script, "Other.")
    chat.do(1, "before")
    chat.answered(script, "Add", CALL)
    chat.page.get_by_label("Result of add").wait_for()


# --- keys ---
def test_tab_goes_through_the_page(chat: ChatPage, script: Script) -> None:
    """From the top to the end; every stop has a name and an outline. All messages share one stop."""
    full(chat, script)
    page = chat.page
    page.locator(".skip").focus()
    stops: list[tuple[str, bool]] = [tuple(page.evaluate(STOPS))]
    while stops[-1][0] != "Send" and len(stops) < 60:
        page.keyboard.press("Tab")
        stops.append(tuple(page.evaluate(STOPS)))
    names = [name for name, _ in stops]
    assert [name for name, shown in stops if not shown] == [] and all(names)
    order = [
        "To the field for questions",
        "New conversation",
        "Settings (Ctrl+Shift+S)",
        "Result of add",
        "Send results",
        "Your question",
        "Send",
    ]
    assert [name for name in names if name in order] == order
    assert page.locator('.message[tabindex="0"]').count() == 1


def test_panels_by_keys(chat: ChatPage, script: Script) -> None:
    """Opening a panel moves the focus into it; closing moves it back."""
    chat.answered(script, "One?", "First.")
    chat.again(1, script, "Second.")
    page, press = chat.page, chat.page.keyboard.press
    toggles = {name: page.get_by_role("button", name=name) for name in ("Conversations", "Tree of turns")}
    press("Control+Shift+E")
    assert toggles["Tree of turns"].get_attribute("aria-expanded") == "true"
    assert chat.focused.get_attribute("role") == "treeitem" and "Second." in chat.focused.inner_text()
    press("ArrowUp")
    press("Enter")
    assert chat.texts == ["One?", "First."]
    press("Control+Shift+E")
    assert toggles["Tree of turns"].get_attribute("aria-expanded") == "false"
    assert chat.focused.get_attribute("aria-label") == toggles["Tree of turns"].get_attribute("aria-label")
    press("Control+Shift+H")
    assert page.locator("#history").is_hidden()
    assert chat.focused.get_attribute("aria-label") == toggles["Conversations"].get_attribute("aria-label")
    press("Control+Shift+S")
    page.get_by_role("dialog", name="Settings").wait_for()
    press("Escape")
    assert chat.focused.get_attribute("aria-label") == toggles["Conversations"].get_attribute("aria-label")


# --- a screen reader ---
def test_an_answer_is_read_once(chat: ChatPage, script: Script) -> None:
    """It is announced when complete, not token by token; before that a message says that it is being written."""
    page = chat.page
    page.evaluate("""() => {
      const spoken = document.getElementById('spoken');
      window.said = [];
      new MutationObserver(() => spoken.textContent && said.push(spoken.textContent))
        .observe(spoken, { childList: true, characterData: true, subtree: true });
    }""")
    words = " ".join(f"word{i}" for i in range(60))
    chat.answered(script, "Hello", words)
    chat.spoken.filter(has_text="The answer is complete").wait_for()
    assert page.evaluate("said") == ["An answer is being written.", f"The answer is complete. {words}"]
    assert chat.spoken.get_attribute("aria-live") == "polite"


def test_names_and_roles(chat: ChatPage, script: Script) -> None:
    full(chat, script)
    chat.open_tree()
    page = chat.page
    assert page.evaluate(NAMELESS) == []
    live = "[...document.querySelectorAll('[aria-live], [role=status], [role=alert], [role=log]')].map((e) => e.id)"
    found = {name for name in page.evaluate(live) if not name.endswith("-trouble")}
    assert found == {"history-note", "spoken"}, "nothing that grows is read while it grows"
    for role, name in (
        ("main", "Conversation"),
        ("complementary", "Tree of turns"),
        ("complementary", "Conversations"),
        ("article", "tiny"),
        ("article", "You"),
    ):
        assert page.get_by_role(role, name=name, exact=True).count() >= 1, (role, name)
    rows = chat.tree.get_by_role("treeitem")
    assert {row.get_attribute("aria-level") for row in rows.all()} == {"1", "2"}
    assert chat.tree.locator('[aria-current="true"]').count() == 1
    chat.branch("Other.").locator(".cost:not(:empty)").wait_for()
    told = chat.branch("Other.").get_attribute("aria-description")
    assert "to read" in told and "known" in told


# --- looks ---
@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrasts(browsing: Browsing, server: Server, script: Script, scheme: str) -> None:
    """WCAG AA, for all texts and icons: a conversation, its tree, probabilities, settings, help, an error, the
    state."""
    chat = opened(browsing, server, color_scheme=scheme)
    page = chat.page
    assert page.evaluate(CONTRASTS) == []
    full(chat, script)
    chat.open_tree()
    chat.branch("Other.").locator(".cost:not(:empty)").wait_for()
    assert page.evaluate(CONTRASTS) == []
    files = [{"name": name, "mimeType": "", "buffer": content} for name, content in (("a", b"b"), ("c", b"\xff"))]
    page.locator("#composer input[type=file]").set_input_files(files)
    page.locator(".chips").get_by_role("alert").filter(has_text="not a text file").wait_for()
    page.get_by_label("Search conversations").fill("Add")
    page.locator("#history-list mark").wait_for()
    assert page.evaluate(CONTRASTS) == [] and page.evaluate(NAMELESS) == []
    page.get_by_role("button", name="Probabilities").click()
    chat.page.keyboard.press("Control+Shift+O")
    page.get_by_role("heading", name="tiny").wait_for()
    chat.answered(script, "Hello", "Some words.").locator(".token").nth(1).click()
    page.locator(".alternatives button").first.wait_for()
    assert page.evaluate(CONTRASTS) == []
    page.keyboard.press("Escape")
    browsing.expects("status of 503")
    page.route("**/v1/chat/completions", lambda route: route.fulfill(status=503, body="{}"))
    chat.ask("Again")
    page.get_by_role("alert").wait_for()
    assert page.evaluate(CONTRASTS) == []
    for key, name in (("Control+Shift+S", "Settings"), ("F1", "Keys")):
        page.keyboard.press(key)
        page.get_by_role("dialog", name=name).wait_for()
        assert page.evaluate(CONTRASTS) == [] and page.evaluate(NAMELESS) == []
        page.keyboard.press("Escape")
    page.goto(f"{server.url}/state")
    page.locator("#cache-list").get_by_text("tokens known").wait_for()
    assert page.evaluate(CONTRASTS) == [] and page.evaluate(NAMELESS) == []


def test_on_a_phone(browsing: Browsing, server: Server, script: Script) -> None:
    """By touch: panels cover the conversation, and close after use; nothing is wider than the window."""
    chat = opened(browsing, server, viewport=PHONE, has_touch=True, is_mobile=True)
    page = chat.page
    script.say(f"{TEXT}\n\n| a | b |\n|---|---|\n| {'wide ' * 30} | x |", "Other.")
    chat.field.fill("Hello")
    page.get_by_role("button", name="Send").tap()
    chat.messages.nth(1).get_by_role("heading", name="A heading").wait_for()
    chat.until_ended()
    chat.messages.nth(1).locator("[data-do=regenerate]").tap()
    chat.messages.nth(1).get_by_text("Other.").wait_for()
    chat.until_ended()
    tree, history = page.locator("#tree"), page.locator("#history")
    assert not tree.is_visible() and not history.is_visible()
    page.get_by_role("button", name="Tree of turns").tap()
    chat.tree.get_by_role("treeitem").nth(1).tap()
    assert not tree.is_visible(), "one wants to see where one has gone"
    chat.messages.nth(1).get_by_role("heading", name="A heading").wait_for()
    page.get_by_role("button", name="Tree of turns").tap()
    page.touchscreen.tap(8, 300)
    assert not tree.is_visible(), "a touch beside it closes it"
    page.get_by_role("button", name="Conversations").tap()
    assert history.is_visible()
    page.touchscreen.tap(352, 300)
    assert not history.is_visible()
    page.get_by_role("button", name="Conversations").tap()
    page.locator("#history-list .open").tap()
    history.wait_for(state="hidden")
    assert not page.evaluate("document.activeElement.id === 'question'"), "no keyboard"
    assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    assert page.evaluate("document.getElementById('scroller').scrollWidth") <= PHONE["width"]
    small = """[...document.querySelectorAll('button, summary, a.button')].filter((each) => each.checkVisibility())
      .map((each) => [each.title || each.textContent, each.getBoundingClientRect()])
      .filter(([, r]) => r.width < 24 || r.height < 24).map(([name]) => name)"""
    assert page.evaluate(small) == []


# --- scrolling ---
BOTTOM = """(({ scrollTop, scrollHeight, clientHeight }) => scrollHeight - scrollTop - clientHeight)
  (document.getElementById('scroller'))"""
PLACE = """[...document.querySelectorAll('.message.assistant p')]
  .find((each) => each.textContent.startsWith('Paragraph 20 of')).getBoundingClientRect().top"""


@pytest.mark.slow
def test_nothing_jumps_while_an_answer_grows(chat: ChatPage, script: Script) -> None:
    """A reader who has scrolled up stays there; at the end the view follows; the input field stays in its place."""
    page = chat.page
    script.say("\n\n".join(f"Paragraph {i} of a long answer." for i in range(70)))
    answer = chat.ask("Talk", wait=False)
    answer.get_by_text("Paragraph 30 of").wait_for()
    assert page.evaluate(BOTTOM) < 60
    page.locator("#scroller").hover()
    page.mouse.wheel(0, -600)
    page.get_by_role("button", name="To the end").wait_for()
    page.wait_for_timeout(100)  # the wheel scrolls smoothly
    before = page.evaluate(PLACE)
    answer.get_by_text("Paragraph 45 of").wait_for()
    assert abs(page.evaluate(PLACE) - before) < 1
    page.get_by_role("button", name="To the end").click()
    chat.until_ended()
    page.wait_for_timeout(100)
    assert page.evaluate(BOTTOM) < 60


def test_going_to_a_branch_stays_where_it_is(chat: ChatPage, script: Script) -> None:
    """It does not scroll to the end of a long conversation, away from the branch."""
    chat.answered(script, "First", "One.")
    chat.again(1, script, "Two.")
    chat.answered(script, "More", "\n\n".join(f"Paragraph {i}." for i in range(30)))
    page = chat.page
    page.evaluate("document.getElementById('scroller').scrollTop = 0")
    chat.do(1, "before")
    chat.do(1, "after")
    chat.messages.nth(3).wait_for()
    page.wait_for_timeout(100)
    assert page.evaluate("document.getElementById('scroller').scrollTop") < 100
    assert chat.focused.get_attribute("id") == chat.messages.nth(1).get_attribute("id")
