"""The chat page in a browser, in short: it loads, and a question is answered. The long suite tests the rest."""

import pytest
from browser import browsing, chromium  # noqa: F401  fixtures
from chat_page import ChatPage, chat, server  # noqa: F401  fixtures
from scripted_chat import Script

pytestmark = pytest.mark.exhaustive

ANSWER = "A **state** is kept:\n\n```python\nx = 1\n```\n\nThat is all."


def test_a_conversation(chat: ChatPage, script: Script) -> None:
    message = chat.answered(script, "What is kept?", ANSWER)
    assert message.locator("strong").inner_text() == "state" and message.locator("pre code").inner_text() == "x = 1"
    assert chat.figures()["reused"] == 0
    chat.answered(script, "And then?", "Nothing.")
    figures = chat.figures()
    assert figures["reused"] > 0 and figures["read"] < 30, "the second question is all that is read"
    assert chat.texts[0] == "What is kept?" and chat.texts[2:] == ["And then?", "Nothing."]
    assert chat.page.title().startswith("What is kept?")
