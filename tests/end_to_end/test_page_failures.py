"""The chat page with a failing server: refused, unreachable, stopped in the middle, slow, with a key."""

import json
import time
from contextlib import closing
from typing import Any

import pytest
from browser import Browsing, browsing, chromium  # noqa: F401  fixtures
from chat_page import ChatPage, chat, opened, server  # noqa: F401  fixtures
from http_server import serving
from scripted_chat import WITH_TOOLS, Script, served

from hybrid.infer import LoadedModel

pytestmark = [pytest.mark.exhaustive, pytest.mark.page]

ANSWERS = "**/v1/chat/completions"


def trouble(chat: ChatPage) -> str:
    """The error of the last answer: one line."""
    alert = chat.messages.last.get_by_role("alert")
    alert.wait_for()
    line: str = alert.locator("p").text_content()  # inner_text() may be "" until it has been laid out
    assert line and "\n" not in line
    return line


def event(**delta: Any) -> str:
    """An event of a stream."""
    return f"data: {json.dumps({'choices': [{'index': 0, 'delta': delta, 'finish_reason': None}]})}\n\n"


def test_refused_then_tried_again(browsing: Browsing, chat: ChatPage, script: Script) -> None:
    """The error is the server's message, or the status if a proxy answers with its own page."""
    browsing.expects("status of 503", "status of 429", "status of 500", "status of 502")
    body = {"status": 503, "message": "the model no longer answers"}
    chat.page.route(
        ANSWERS,
        lambda route: route.fulfill(
            status=body["status"],
            body=json.dumps({"error": {"message": body["message"]}}) if body["message"] else "<html>bad gateway</html>",
        ),
    )
    chat.ask("Hello")
    assert trouble(chat) == "the model no longer answers"
    for status, message in ((429, "64 requests wait already"), (500, "an error inside the server"), (502, None)):
        body |= {"status": status, "message": message}
        chat.messages.last.get_by_role("button", name="Try again").click()
        says = message or f"The server answers with status {status}."
        chat.messages.last.get_by_role("alert").filter(has_text=says).wait_for()
        assert trouble(chat) == says
    chat.page.unroute(ANSWERS)
    script.say("Here I am.")
    chat.messages.last.get_by_role("button", name="Try again").click()
    chat.messages.last.get_by_text("Here I am.").wait_for()
    chat.until_ended()
    assert chat.texts == ["Hello", "Here I am."] and chat.page.get_by_role("alert").count() == 0


def test_a_server_that_ends_in_the_middle(browsing: Browsing, chat_model: LoadedModel, script: Script) -> None:
    """The partial answer stays. Later requests report that the server is unreachable."""
    browsing.expects("ERR_", "Failed to load")
    with closing(served(chat_model, WITH_TOOLS)) as server:
        chat = opened(browsing, server)
        script.say("".join(f"Word {i}. " for i in range(900)))
        chat.ask("Talk", wait=False)
        chat.messages.nth(1).get_by_text("Word 9.").wait_for()
        server.server.should_exit = True
        assert trouble(chat)
        assert chat.texts[1].startswith("Word 0. Word 1.")
        server.thread.join()
        chat.ask("Are you there?")
        assert trouble(chat) == "The server cannot be reached. Is it still running?"


def test_a_connection_that_is_cut(chat: ChatPage, script: Script) -> None:
    """A stream without its end mark is incomplete; the user can continue it, or retry on a new branch."""
    half = event(content="Half of")
    chat.page.route(ANSWERS, lambda route: route.fulfill(body=half, content_type="text/event-stream"))
    chat.ask("Hello")
    assert trouble(chat) == "The connection ended in the middle of the answer."
    chat.page.unroute(ANSWERS)
    script.say(" an answer.")
    chat.do(1, "proceed")
    chat.messages.nth(1).get_by_text("Half of an answer.").wait_for()
    chat.until_ended()
    chat.page.route(ANSWERS, lambda route: route.fulfill(body=half, content_type="text/event-stream"))
    chat.ask("Again")
    chat.page.unroute(ANSWERS)
    script.say("A whole one.")
    chat.messages.last.get_by_role("button", name="Try again").click()
    chat.messages.last.get_by_text("A whole one.").wait_for()
    chat.until_ended()
    assert chat.messages.last.locator(".siblings").inner_text().strip() == "2 / 2", "what was written is not lost"


def test_half_a_call_is_no_beginning(chat: ChatPage, script: Script) -> None:
    """A retry does not continue a partial call."""
    begun = {"index": 0, "id": "c", "function": {"name": "ad", "arguments": '{"a'}}
    body = event(tool_calls=[begun])
    chat.page.route(ANSWERS, lambda route: route.fulfill(body=body, content_type="text/event-stream"))
    chat.ask("Hello")
    chat.page.get_by_text("Calls ad").wait_for()
    assert trouble(chat) == "The connection ended in the middle of the answer."
    chat.page.unroute(ANSWERS)
    script.say("No call.")
    chat.messages.last.get_by_role("button", name="Try again").click()
    chat.messages.last.get_by_text("No call.").wait_for()
    chat.until_ended()
    assert chat.messages.last.locator(".call").count() == 0


def test_a_slow_server(chat: ChatPage) -> None:
    """The page shows that and how long it waits, and can be stopped at once."""
    chat.page.route(ANSWERS, lambda route: None)  # never answered
    answer = chat.ask("Hello", wait=False)
    answer.get_by_text("Waiting for the server").wait_for()
    answer.get_by_text("3 s").wait_for()
    start = time.monotonic()
    chat.page.keyboard.press("Escape")
    chat.until_ended()
    assert time.monotonic() - start < 10 and answer.get_by_text("Stopped.").is_visible()


def test_a_key(browsing: Browsing, chat_model: LoadedModel, script: Script) -> None:
    """The page asks for a missing key; it keeps the key for the tab only, and never exports it."""
    browsing.expects("status of 401")
    with serving(chat_model, keys=("secret",)) as server:
        chat = opened(browsing, server)
        page = chat.page
        page.get_by_role("button", name="Enter the key").click()
        page.get_by_label("Key of the server").fill("wrong")
        page.keyboard.press("Escape")
        page.get_by_role("button", name="Enter the key").wait_for()
        chat.ask("Hello")
        assert trouble(chat)
        chat.messages.last.get_by_role("button", name="Enter the key").click()
        page.get_by_label("Key of the server").fill("secret")
        page.keyboard.press("Enter")
        script.say("Welcome.")
        chat.messages.last.get_by_role("button", name="Try again").click()
        chat.messages.last.get_by_text("Welcome.").wait_for()
        chat.until_ended()
        chat.until_kept("Welcome.")
        assert "secret" not in json.dumps(chat.exported())
        page.reload()
        chat.answered(script, "And now?", "Still.")
        assert "secret" not in page.evaluate("JSON.stringify({...localStorage})")


def test_what_is_refused_is_shown_at_its_field(browsing: Browsing, chat: ChatPage, script: Script) -> None:
    browsing.expects("status of 400")
    chat.page.get_by_role("button", name="Settings").click()
    chat.page.get_by_label("Top-p").fill("7")
    chat.page.keyboard.press("Escape")
    chat.ask("Hello")
    assert trouble(chat) == "top_p = 7.0, expected a number above 0, at most 1"
    chat.messages.last.get_by_role("button", name="Open the setting").click()
    field = chat.page.get_by_label("Top-p")
    assert field.get_attribute("aria-invalid") == "true" and chat.focused.get_attribute("id") == "set-top_p"
    assert chat.page.locator("#set-top_p-trouble").inner_text() == "top_p = 7.0, expected a number above 0, at most 1"
    field.fill("0.9")
    chat.page.get_by_role("button", name="Done").click()
    script.say("At last.")
    chat.messages.last.get_by_role("button", name="Try again").click()
    chat.messages.last.get_by_text("At last.").wait_for()
    chat.until_ended()


def test_a_context_that_is_full(browsing: Browsing, chat: ChatPage) -> None:
    browsing.expects("status of 400")
    chat.ask("word " * 5000)
    assert "exceeds the available context size of 4096 tokens" in trouble(chat)
