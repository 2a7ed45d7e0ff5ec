"""Conversations stored by the chat: after a reload, in two tabs, long ones. Lists and files: test_page_panels.py."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from browser import Browsing, browsing, chromium  # noqa: F401  fixtures
from chat_page import KEPT, WIDE, ChatPage, chat, long_chat, opened, server  # noqa: F401  fixtures
from http_server import Server, until
from scripted_chat import Script

pytestmark = [pytest.mark.exhaustive, pytest.mark.page]


@pytest.fixture
def held(server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Answers stop growing at 40 tokens until this is set."""
    go, step = threading.Event(), server.service.batcher.step

    def waiting() -> Any:
        if any(len(job.result.ids) >= 40 for job in server.service.running):
            go.wait(60)
        return step()

    monkeypatch.setattr(server.service.batcher, "step", waiting)
    yield go
    go.set()


WORDS = " ".join(f"word{i}" for i in range(40))


def test_all_of_a_conversation_is_there_after_a_reload(chat: ChatPage, script: Script) -> None:
    """Branches, the shown branch, figures. The conversation continues without reading anything twice."""
    chat.answered(script, "First", "One.")
    chat.again(1, script, "Other.")
    chat.do(1, "before")
    figures = chat.figures()
    chat.page.keyboard.press("Control+Shift+O")
    chat.answered(script, "Another", "Two.")
    chat.until_kept("Two.")
    chat.page.reload()
    chat.messages.nth(1).get_by_text("Two.").wait_for()
    assert chat.names == ["Another", "First"]
    chat.open("First")
    chat.messages.nth(1).get_by_text("One.").wait_for()
    assert chat.messages.nth(1).get_by_text("1 / 2").is_visible() and chat.figures() == figures
    chat.answered(script, "And now?", "Still here.")
    assert chat.figures()["read"] < 30


def test_an_emptied_conversation_is_gone(chat: ChatPage, script: Script) -> None:
    """Also after a reload; its draft and what is asked next belong to a new one."""
    chat.answered(script, "First", "One.")
    chat.until_kept("One.")
    chat.do(0, "remove")
    chat.page.locator("#welcome").wait_for()
    until(lambda: chat.page.evaluate(KEPT) == [])
    assert chat.names == [] and chat.focused.get_attribute("id") == "question"
    chat.page.reload()
    chat.page.locator("#welcome").get_by_text("Context").wait_for()
    assert chat.messages.count() == 0 and chat.names == []
    chat.answered(script, "Second", "Two.")
    chat.do(0, "remove")  # perhaps before it is written
    chat.page.locator("#welcome").wait_for()
    chat.answered(script, "Third", "Three.")
    chat.until_kept("Three.")
    assert chat.names == ["Third"] and [each["nodes"][0]["content"] for each in chat.page.evaluate(KEPT)] == ["Third"]


def test_an_answer_that_was_left_is_kept(chat: ChatPage, script: Script, held: threading.Event) -> None:
    """The part written so far is stored, and the user can continue it."""
    script.say(WORDS)
    chat.ask("Talk", wait=False)
    chat.until_kept("word7")
    chat.page.reload()
    chat.messages.nth(1).get_by_text("word7").wait_for()
    assert chat.messages.nth(1).get_by_text("Stopped.").is_visible()
    held.set()
    script.say("and on.")
    chat.do(1, "proceed")
    chat.messages.nth(1).get_by_text("and on.").wait_for()
    assert chat.texts[1].startswith("word0 word1")


@pytest.mark.slow
def test_an_answer_that_grows_in_another_tab(
    browsing: Browsing, server: Server, script: Script, held: threading.Event
) -> None:
    """A tab that loaded half of the answer does not overwrite the whole, and then shows the whole."""
    context = browsing.context(server, viewport=WIDE)
    one = ChatPage(browsing.visit(context, server))
    script.say(WORDS)
    one.ask("Talk", wait=False)
    one.until_kept("word7")
    other = ChatPage(browsing.visit(context, server))
    other.messages.nth(1).get_by_text("word7").wait_for()
    held.set()
    one.until_ended()
    other.messages.nth(1).get_by_text("word39").wait_for()
    assert other.messages.nth(1).get_by_text("Stopped.").count() == 0
    other.answered(script, "And?", "Yes.")
    other.until_kept("Yes.")
    one.open_tree()
    one.branch("Yes.").wait_for()
    one.page.reload()
    one.messages.nth(3).get_by_text("Yes.").wait_for()
    assert one.texts == ["Talk", WORDS, "And?", "Yes."]


@pytest.mark.slow
def test_a_thousand_messages(chat: ChatPage, script: Script) -> None:
    """Opened, scrolled, traversed in the tree, and answered. Times: tests/page_load.py."""
    assert chat.bring(long_chat(1000)) == "1 conversation imported."
    page = chat.page
    chat.open("Long")
    chat.until_shown("Message 999")
    assert chat.messages.count() == 1000
    page.evaluate("""async () => {
      const scroller = document.getElementById('scroller');
      for (let i = 0; i <= 30; i += 1) {
        scroller.scrollTop = (1 - i / 30) * scroller.scrollHeight;
        await new Promise(requestAnimationFrame);
      }
    }""")
    page.locator(".message strong").first.wait_for()
    assert page.locator(".message .prose").count() < 300, "what is far away is not drawn"
    chat.open_tree()
    assert chat.tree.get_by_role("treeitem").count() == 1010
    chat.branch("Other 99").first.click()
    chat.messages.nth(99).get_by_text("Other 99").wait_for()
    assert chat.messages.count() == 100
    chat.do(0, "edit")
    page.locator("textarea.edit").fill("A branch at the beginning")
    script.say("Short.")
    page.keyboard.press("Enter")
    chat.until_shown("Short.")
    chat.until_ended()
    chat.answered(script, "And?", "On a branch of a thousand.")
    assert chat.texts == ["A branch at the beginning", "Short.", "And?", "On a branch of a thousand."]
