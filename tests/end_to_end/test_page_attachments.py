"""Text files that go with a question of the chat page: chosen, dropped, pasted, refused, sent, kept, edited."""

import json
from typing import Any

import pytest
from browser import Browsing, browsing, chromium  # noqa: F401  fixtures
from chat_page import PHONE, ChatPage, chat, opened, server  # noqa: F401  fixtures
from http_server import Server
from scripted_chat import Script

pytestmark = [pytest.mark.exhaustive, pytest.mark.page]

NOTES = "# Notes\n\n```py\nx = 1\n```\n\nand ````four````: \u00e9\u4e2d\n"
SENT = f"notes.md:\n`````\n{NOTES}`````"
DATA = "a,b\n1,2"

# a drop onto an element, or a paste, of [name, content] as files; `more`: other kinds of data
GIVEN = """(element, [kind, files, more]) => {
  const data = new DataTransfer();
  for (const [name, content] of files) data.items.add(new File([content], name));
  for (const [type, text] of Object.entries(more)) data.setData(type, text);
  const init = { bubbles: true, cancelable: true, dataTransfer: data, clipboardData: data };
  const event = kind === "paste" ? new ClipboardEvent(kind, init) : new DragEvent(kind, init);
  element.dispatchEvent(event);
  return event.defaultPrevented;
}"""


def choose(chat: ChatPage, *files: tuple[str, str | bytes]) -> None:
    with chat.page.expect_file_chooser() as waiting:
        chat.page.get_by_role("button", name="Attach text files").click()
    contents = [(name, text.encode() if isinstance(text, str) else text) for name, text in files]
    waiting.value.set_files([{"name": name, "mimeType": "", "buffer": content} for name, content in contents])


def chips(chat: ChatPage, within: str = "#composer") -> list[str]:
    chat.page.locator(f"{within} .chips").wait_for(state="attached")
    found: list[str] = chat.page.locator(f"{within} .chip").all_inner_texts()
    return [each.strip() for each in found]


def sent(chat: ChatPage, script: Script, question: str, answer: str = "Fine.") -> list[str]:
    """Ask a question; return the texts of the messages in the request."""
    with chat.page.expect_request("**/v1/chat/completions") as waiting:
        chat.answered(script, question, answer)
    return texts(waiting.value)


def texts(request: Any) -> list[str]:
    return [message["content"] for message in json.loads(request.post_data)["messages"]]


def test_files_are_sent_with_the_question(chat: ChatPage, script: Script) -> None:
    """Each with its name and in a fence longer than any in it; the transcript shows them folded."""
    choose(chat, ("notes.md", NOTES), ("not this.txt", "no"), ("data.csv", DATA))
    chat.page.get_by_role("button", name="Remove not this.txt").click()
    assert chips(chat) == [f"notes.md \u00b7 {len(NOTES.encode())} bytes", "data.csv \u00b7 7 bytes"]
    assert sent(chat, script, "Explain this") == [f"{SENT}\n\ndata.csv:\n```\n{DATA}\n```\n\nExplain this"]
    chat.until_kept("Explain this")
    assert chips(chat) == [] and chat.names == ["Explain this"]
    card = chat.messages.nth(0).locator("details", has_text="notes.md")
    assert not card.get_by_text("and ````four````").is_visible()
    card.locator("summary").click()
    assert card.locator("pre").inner_text() == NOTES
    assert sent(chat, script, "And now?")[0].startswith(SENT), "the next request has them, too"
    assert card.get_attribute("open") is not None, "an opened card stays open"
    assert sent(chat, script, "Without")[-1] == "Without"


def test_they_stay_with_branches_edits_and_files_of_conversations(
    chat: ChatPage, script: Script, browsing: Browsing, server: Server
) -> None:
    choose(chat, ("notes.md", NOTES), ("data.csv", DATA))
    chat.answered(script, "Explain this", "Notes.")
    chat.do(0, "edit")
    form = chat.page.locator("form.editing")
    form.get_by_role("button", name="Remove data.csv").click()
    form.locator("textarea").fill("Explain these")
    script.say("Only notes.")
    with chat.page.expect_request("**/v1/chat/completions") as waiting:
        chat.page.keyboard.press("Enter")
    assert texts(waiting.value) == [f"{SENT}\n\nExplain these"]
    chat.until_shown("Only notes.")
    chat.until_ended()
    cards = chat.messages.nth(0).locator("details")
    assert cards.count() == 1
    chat.do(0, "before")
    assert cards.count() == 2 and chat.messages.nth(0).get_by_text("Explain this").is_visible()
    chat.until_kept("Only notes.")
    chat.page.reload()
    cards.nth(1).wait_for()
    other = opened(browsing, server)
    assert other.bring(chat.exported()) == "1 conversation imported."
    other.open("Explain this")
    other.messages.nth(0).locator("details").nth(1).wait_for()
    assert sent(other, script, "And?")[0].endswith(f"data.csv:\n```\n{DATA}\n```\n\nExplain this")
    other.open_tree()
    other.tree.locator(".cost:not(:empty)").nth(1).wait_for()
    told = other.tree.locator(".cost").first.get_attribute("title")
    assert int(told.split(" of ")[1].split()[0].replace("\u202f", "")) > 50, "with the files"


def test_a_file_without_words(chat: ChatPage, script: Script) -> None:
    """It is a question, and names the conversation. Enter sends it after the answer that is being written."""
    choose(chat, ("data.csv", DATA))
    assert chips(chat)
    assert sent(chat, script, "") == [f"data.csv:\n```\n{DATA}\n```"]
    chat.until_kept("Fine.")
    assert chat.names == ["data.csv"] and chat.page.locator("#title").inner_text() == "data.csv"
    words = " ".join(f"word{i}" for i in range(60))
    script.say(words, "Second.")
    chat.ask("One?", wait=False)
    choose(chat, ("more.csv", DATA))
    chat.page.locator("#composer .chip").wait_for()
    chat.field.press("Enter")
    chat.until_shown("Second.")
    assert chat.messages.nth(4).locator("details").inner_text().startswith("more.csv")


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("x.png", b"\x89PNG\r\n", "x.png: this model takes no pictures."),
        ("zero.bin", b"a\0b", "zero.bin: not a text file in UTF-8."),
        ("latin.txt", "caf\u00e9".encode("latin-1"), "latin.txt: not a text file in UTF-8."),
        (
            "big.txt",
            b"a" * 16_385,
            "big.txt: 16\u202f385 bytes, but the files of a question have at most 16\u202f384 together, 4 per token of "
            "the context.",
        ),
    ],
)
def test_refused_in_one_line(chat: ChatPage, name: str, content: bytes, says: str) -> None:
    """The other files are taken."""
    chat.page.get_by_role("heading", name="tiny").wait_for()
    choose(chat, ("good.txt", "good"), (name, content))
    alert = chat.page.locator("#composer").get_by_role("alert")
    alert.filter(has_text=name).wait_for()
    assert alert.inner_text() == says and chips(chat) == ["good.txt \u00b7 4 bytes"]
    choose(chat, ("full.txt", b"a" * (16_384 - 4)))
    chat.page.get_by_role("button", name="Remove full.txt").wait_for()
    assert not alert.is_visible(), "only of the last choice"
    choose(chat, ("one.txt", "x"))
    alert.filter(has_text="one.txt: 1 bytes, but").wait_for()
    assert len(chips(chat)) == 2


def test_dropped_and_pasted(chat: ChatPage) -> None:
    page = chat.page
    composer, body = page.locator("#composer"), page.locator("#scroller")
    given = [["notes.md", NOTES]]
    assert body.evaluate(GIVEN, ["dragover", given, {}]), "or the browser would open the file"
    assert composer.evaluate("(form) => form.classList.contains('over')")
    assert body.evaluate(GIVEN, ["drop", given, {}])
    page.get_by_role("button", name="Remove notes.md").wait_for()
    assert not composer.evaluate("(form) => form.classList.contains('over')")
    assert chat.field.evaluate(GIVEN, ["paste", [["pasted.txt", "p"]], {"text/plain": "pasted.txt"}])
    page.get_by_role("button", name="Remove pasted.txt").wait_for()
    cells = [["image.png", "x"]], {"text/html": "<table></table>", "text/plain": "1\t2"}
    assert not chat.field.evaluate(GIVEN, ["paste", *cells]), "cells of a table are pasted as text"
    assert not chat.field.evaluate(GIVEN, ["paste", [], {"text/plain": "words"}])
    assert len(chips(chat)) == 2


def test_a_long_name_on_a_phone(browsing: Browsing, server: Server, script: Script) -> None:
    chat = opened(browsing, server, viewport=PHONE)
    choose(chat, ("n" * 150 + ".txt", "x"), ("a \n b.txt", "y"))
    chat.page.get_by_role("button", name="Remove a b.txt").wait_for()
    chat.answered(script, "Hello")
    assert chat.page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    assert chat.page.evaluate("document.getElementById('scroller').scrollWidth") <= PHONE["width"]
    card = chat.messages.nth(0).locator("summary").first.bounding_box()
    assert card["x"] + card["width"] <= PHONE["width"]
