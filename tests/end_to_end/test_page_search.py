"""The search over the conversations of the chat page."""

from typing import Any

import pytest
from browser import Browsing, browsing, chromium  # noqa: F401  fixtures
from chat_page import PHONE, ChatPage, chat, opened, server  # noqa: F401  fixtures
from http_server import Server, until
from scripted_chat import Script

pytestmark = [pytest.mark.exhaustive, pytest.mark.page]

LONG = "Much comes before the place. " * 20


def conversation(name: str, *texts: str, title: str = "", **more: Any) -> dict[str, Any]:
    """For an import: a path of messages. The names order the list, the last one first."""
    nodes = [
        {"id": f"{name}{i}", "parent": f"{name}{i - 1}" if i else None, "role": ("user", "assistant")[i % 2],
         "content": text, "reasoning": "", "toolCalls": [], "finish": "stop", "created": sum(map(ord, name)) + i} | more
        for i, text in enumerate(texts)
    ]  # fmt: skip
    return {
        "id": name, "title": title, "system": "", "created": 1, "changed": nodes[-1]["created"], "nodes": nodes,
        "head": nodes[-1]["id"],
    }  # fmt: skip


def other_answer(chat: dict[str, Any], text: str) -> dict[str, Any]:
    """The conversation with another answer to its first question, on a branch that is not shown."""
    return chat | {"nodes": [*chat["nodes"], chat["nodes"][1] | {"id": f"{chat['id']}-other", "content": text}]}


CHATS = [
    conversation("a", "Bake bread", f"{LONG}Use 500 g of flour (type 1050) and wait. {LONG}"),
    other_answer(conversation("b", "Caf\u00e9 in K\u00f6ln?", "Yes, a nice one."), "On the other side of the river."),
    conversation("c", "Hello", "Hi.", title="Stra\u00dfen \u00fcber 1050 m"),
    conversation("d", "\u039f\u03b4\u03cc\u03c2 [x]*", "A road, decomposed: cafe\u0301."),
]


@pytest.fixture
def full(chat: ChatPage) -> ChatPage:
    chat.bring({"format": "hybrid-chats", "version": 1, "chats": CHATS})
    assert len(chat.names) == 4
    return chat


def field(chat: ChatPage) -> Any:
    return chat.page.get_by_role("searchbox", name="Search conversations")


def search(chat: ChatPage, words: str) -> list[tuple[str, str]]:
    """The names and excerpts of the found conversations."""
    field(chat).fill(words)
    until(lambda: chat.page.evaluate(SEARCHED, words))
    return shown(chat)


SEARCHED = """(words) => new Promise((done) => requestAnimationFrame(() => {
  const { value } = document.getElementById("history-search");
  done(value === words && /Found in|No conversation/.test(document.getElementById("history-note").textContent));
}))"""


def shown(chat: ChatPage) -> list[tuple[str, str]]:
    rows = chat.page.locator("#history-list li:visible").all()
    return [(row.locator(".name").inner_text(), "".join(row.locator(".excerpt").all_inner_texts())) for row in rows]


def test_titles_and_messages_whatever_case_and_accents(full: ChatPage) -> None:
    """All branches are searched. An excerpt shows the place; a title needs none."""
    cut = "\u2026 the place. Use 500 g of flour (type 1050) and wait. Much comes before"
    (name, excerpt) = search(full, "FLOUR")[0]
    assert name == "Bake bread" and excerpt.startswith(cut)
    assert full.page.locator("#history-list mark").inner_text() == "flour"
    assert full.page.locator("#history-note").inner_text() == "Found in 1 of 4 conversations."
    assert [name for name, _ in search(full, "1050")] == ["Stra\u00dfen \u00fcber 1050 m", "Bake bread"]
    assert search(full, "uber strassen") == [], "one letter is not two"
    assert search(full, "UBER Stra\u00dfen") == [("Stra\u00dfen \u00fcber 1050 m", "")]
    road = ("\u039f\u03b4\u03cc\u03c2 [x]*", "A road, decomposed: caf\u00e9.")
    assert search(full, "cafe") == [road, ("Caf\u00e9 in K\u00f6ln?", "Caf\u00e9 in K\u00f6ln?")]
    assert search(full, "\u03bf\u03b4\u03bf\u03c3 [X]*") == [(road[0], road[0])]
    assert search(full, "koln  Caf\u00e9")[0][0] == "Caf\u00e9 in K\u00f6ln?"
    assert search(full, "river") == [("Caf\u00e9 in K\u00f6ln?", "On the other side of the river.")]
    assert search(full, "bread flour") == [], "all words are in one message"
    assert search(full, ".") and search(full, "(type")
    assert full.page.locator("#history-note").inner_text() == "Found in 1 of 4 conversations."
    field(full).fill("")
    full.page.locator("#history-note").wait_for(state="hidden")
    assert len(shown(full)) == 4 and full.page.locator(".excerpt").count() == 0


def test_by_keys(full: ChatPage) -> None:
    """A shortcut, arrows over the found rows, Enter goes to the message, Escape shows all."""
    page, press = full.page, full.page.keyboard.press
    press("Control+Shift+H")
    assert not page.locator("#history").is_visible()
    press("Control+Shift+F")
    assert full.focused.get_attribute("id") == "history-search"
    page.keyboard.type("1050")
    page.locator("#history-note", has_text="Found in 2 of 4 conversations.").wait_for()
    press("ArrowDown")
    press("ArrowDown")
    assert full.focused.inner_text().startswith("Bake bread"), "hidden rows are passed over"
    press("ArrowDown")
    assert full.focused.inner_text().startswith("Bake bread")
    press("ArrowUp")
    assert full.focused.inner_text().startswith("Stra\u00dfen")
    press("Escape")
    assert full.focused.get_attribute("id") == "history-search" and field(full).input_value() == ""
    assert len(shown(full)) == 4
    page.keyboard.type("river")
    page.locator("#history-note", has_text="Found in 1 of 4 conversations.").wait_for()
    press("Enter")
    full.until_shown("On the other side")
    assert full.texts == ["Caf\u00e9 in K\u00f6ln?", "On the other side of the river."]
    assert full.focused.get_attribute("id") == "m-b-other"


def test_it_follows_what_is_written(full: ChatPage, script: Script) -> None:
    """A conversation that gets the words is shown, one that is renamed or removed is not."""
    assert [name for name, _ in search(full, "river")] == ["Caf\u00e9 in K\u00f6ln?"]
    full.page.keyboard.press("Control+Shift+O")
    full.answered(script, "Which one?", "The river is the Rhine.")
    full.page.locator("#history-note", has_text="Found in 2 of 5 conversations.").wait_for()
    assert shown(full)[0] == ("Which one?", "The river is the Rhine.")
    full.page.locator("#history-list .open:visible").nth(1).focus()
    full.page.keyboard.press("F2")
    full.page.keyboard.type("Renamed")
    full.page.keyboard.press("Enter")
    full.page.locator("#history-list .name", has_text="Renamed").wait_for()
    assert shown(full)[1] == ("Renamed", "On the other side of the river.")
    full.page.keyboard.press("Delete")
    full.page.get_by_role("button", name="Yes").click()
    full.page.locator("#history-list .name", has_text="Renamed").wait_for(state="detached")
    assert [name for name, _ in shown(full)] == ["Which one?"]
    assert full.focused.inner_text().startswith("Which one?"), "not a hidden row"


def test_hundreds_of_conversations(chat: ChatPage) -> None:
    words = "Some words that stand in each of these messages. " * 10
    many = [conversation(f"c{i}", *[f"{words} number{i}x{j}" for j in range(20)]) for i in range(300)]
    chat.bring({"format": "hybrid-chats", "version": 1, "chats": many})
    found = search(chat, "Number217X3")
    assert len(found) == 1 and found[0][1].endswith("number217x3")
    assert len(search(chat, "messages each")) == 300


def test_on_a_phone(browsing: Browsing, server: Server) -> None:
    chat = opened(browsing, server, viewport=PHONE)
    chat.page.keyboard.press("Control+Shift+H")
    chat.bring({"format": "hybrid-chats", "version": 1, "chats": CHATS})
    assert search(chat, "flour")
    inner, outer = chat.page.locator("#history-list").evaluate("(e) => [e.scrollWidth, e.clientWidth]")
    assert inner <= outer
    chat.page.locator("#history-list .open:visible").click()
    chat.until_shown("flour")
    assert not chat.page.locator("#history").is_visible()
