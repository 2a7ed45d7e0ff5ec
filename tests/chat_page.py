"""The chat page as a person uses it, for tests in Chromium.

from browser import browsing, chromium         # fixtures, for a module
from chat_page import ChatPage, chat, server   # two more: the chat at a server with thoughts and tools
"""

import json
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from http_server import Server, until
from scripted_chat import WITH_TOOLS, Script, served

from hybrid.infer import LoadedModel

WIDE, PHONE = {"width": 1400, "height": 900}, {"width": 360, "height": 740}


class ChatPage:
    """The chat in a playwright page.

    field     the input for questions
    messages  all messages that are shown
    tree      the drawing of all turns
    """

    def __init__(self, page: Any) -> None:
        self.page = page
        self.field = page.get_by_label("Your question")
        self.messages = page.locator(".message")
        self.tree = page.get_by_role("tree", name="Turns")

    # --- conversations ---
    def ask(self, question: str, *, wait: bool = True) -> Any:
        """Send a question with Enter. Returns the answer's message, with `wait` after the answer has ended."""
        n = self.messages.count()
        self.field.fill(question)
        self.field.press("Enter")
        answer = self.messages.nth(n + 1)
        answer.wait_for()
        if wait:
            self.until_ended()
        return answer

    def answered(self, script: Script, question: str, answer: str = "Fine.") -> Any:
        """Ask a question that the script answers; return the answer's message when it is complete."""
        script.say(answer)
        return self.ask(question)

    def until_shown(self, text: str) -> None:
        """Wait for a message with this text."""
        self.messages.get_by_text(text).first.wait_for()

    def until_ended(self) -> None:
        """Wait until no answer is being generated."""
        self.page.get_by_role("button", name="Send", exact=True).wait_for()

    def again(self, index: int, script: Script, answer: str) -> None:
        """Regenerate a message with a scripted answer, and wait until it is complete."""
        script.say(answer)
        self.do(index, "regenerate")
        self.messages.nth(index).get_by_text(answer).wait_for()
        self.until_ended()

    def do(self, index: int, what: str) -> None:
        """Press a button of a message."""
        message = self.messages.nth(index)
        message.hover()
        message.locator(f"[data-do={what}]").click()

    @property
    def texts(self) -> list[str]:
        """The texts of the visible messages, once none is empty: a message that scrolls into view is drawn a moment
        later."""
        drawn = "() => [...document.querySelectorAll('.message .body')].every((each) => each.innerText.trim())"
        self.page.wait_for_function(drawn)
        return [text.strip() for text in self.page.locator(".message .body").all_inner_texts()]

    @property
    def spoken(self) -> Any:
        """The element that a screen reader announces."""
        return self.page.locator("#spoken")

    @property
    def focused(self) -> Any:
        return self.page.locator("*:focus")

    def figures(self, index: int = -1) -> dict[str, int]:
        """Token counts in an answer's bar: reused, read, generated."""
        told = self.messages.nth(index).locator(".figure").all()
        return {each.locator("dt").inner_text(): _number(each.locator("dd").inner_text()) for each in told}

    # --- the tree ---
    def open_tree(self) -> None:
        self.page.get_by_role("button", name="Tree of turns").click()
        self.tree.wait_for()

    def branch(self, text: str) -> Any:
        """The tree's rows with this text."""
        return self.tree.get_by_role("treeitem").filter(has_text=text)

    # --- stored conversations ---
    @property
    def names(self) -> list[str]:
        """The names in the list of conversations."""
        found: list[str] = self.page.locator("#history-list .name").all_inner_texts()
        return found

    def open(self, name: str) -> None:
        self.page.locator("#history-list .open", has_text=name).click()

    def until_kept(self, *parts: str) -> None:
        """Wait until the browser's database contains all `parts`."""
        until(lambda: all(part in json.dumps(self.page.evaluate(KEPT)) for part in parts))

    def bring(self, file: Any) -> str:
        """Import conversations. Returns the page's note about it."""
        with self.page.expect_file_chooser() as waiting:
            self.page.get_by_role("button", name="Import").click()
        content = json.dumps(file).encode()
        note = self.page.locator("#history-note")
        waiting.value.set_files({"name": "chats.json", "mimeType": "application/json", "buffer": content})
        note.filter(has_text="imported").wait_for()
        return str(note.inner_text())

    def exported(self) -> Any:
        """All conversations, as the page exports them."""
        with self.page.expect_download() as waiting:
            self.page.get_by_role("button", name="Export all").click()
        return json.loads(Path(waiting.value.path()).read_text())


# reads the browser's database
KEPT = """() => new Promise((done) => {
  const request = indexedDB.open("hybrid", 1);
  request.onsuccess = () => {
    const all = request.result.transaction("chats").objectStore("chats").getAll();
    all.onsuccess = () => { request.result.close(); done(all.result); };
  };
})"""


def _number(text: str) -> int:
    """The first number of a text, 1204 for "1 204 90/s"; narrow spaces separate thousands."""
    found = re.match(r"[\d\u202f]+", text)
    assert found, text
    return int(found[0].replace("\u202f", ""))


def opened(browsing: Any, server: Server, **options: Any) -> ChatPage:
    """The chat in a new profile, in a wide window unless `options` say otherwise."""
    return ChatPage(browsing.open(server, **{"viewport": WIDE, **options}))


@pytest.fixture(scope="module")
def server(chat_model: LoadedModel) -> Iterator[Server]:
    with closing(served(chat_model, WITH_TOOLS)) as server:
        yield server


@pytest.fixture
def chat(browsing: Any, server: Server) -> ChatPage:
    return opened(browsing, server)


def long_chat(n: int) -> dict[str, Any]:
    """An import file with one conversation of n messages, with a branch at every hundredth."""
    nodes: list[dict[str, Any]] = []
    for i in range(n):
        node = {"parent": f"m{i - 1}" if i else None, "role": ("user", "assistant")[i % 2], "created": 2 * i}
        node |= {"reasoning": "", "toolCalls": [], "finish": "stop"}
        text = f"Message {i}: **bold** text\n\n- a list\n- of two\n\n```py\nx = {i}\n```\n" + "Some text of it. " * 4
        if i % 100 == 99:
            nodes.append({**node, "id": f"b{i}", "content": f"Other {i}"})
        nodes.append({**node, "id": f"m{i}", "content": text})
    chat = {"id": "long", "title": "Long", "system": "", "created": 1, "changed": 2, "nodes": nodes}
    return {"format": "hybrid-chats", "version": 1, "chats": [{**chat, "head": f"m{n - 1}"}]}
