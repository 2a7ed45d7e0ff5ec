"""The chat page, as somebody uses it in a browser: a scripted model answers."""

import json
import re
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from browser import Browsing, browsing, chromium  # noqa: F401  fixtures
from http_server import Server, serving
from scripted_chat import CALL, TOOLS, WITH_THOUGHTS, WITH_TOOLS, Script, served

from hybrid.infer import Model

ANSWER = "A **state** is kept:\n\n```python\nx = 1\n```\n\nThat is all."


@pytest.fixture(scope="module")
def server(chat_model: Model) -> Iterator[Server]:
    with closing(served(chat_model, WITH_TOOLS)) as server:
        yield server


@pytest.fixture
def page(browsing: Browsing, server: Server) -> Any:  # noqa: F811
    return browsing.open(server)


def ask(page: Any, question: str) -> None:
    page.locator("#question").fill(question)
    page.keyboard.press("Enter")


def answered(page: Any, script: Script, question: str, answer: str = "Fine.") -> Any:
    """The message with the answer, when it is complete."""
    script.say(answer)
    n = page.locator(".message.assistant").count()
    page.locator("#question").fill(question)
    page.locator("#send").click()
    message = page.locator(".message.assistant").nth(n)
    complete(message)
    return message


def complete(message: Any) -> None:
    message.locator(".figures").wait_for()
    message.page.wait_for_function("element => !element.classList.contains('running')", arg=message.element_handle())


def do(message: Any, what: str) -> None:
    message.hover()
    message.locator(f"[data-do={what}]").click()


def texts(page: Any) -> list[str]:
    return [text.strip() for text in page.locator(".message .body").all_text_contents()]


def test_a_conversation(page: Any, script: Script, server: Server) -> None:
    message = answered(page, script, "What is kept?", ANSWER)
    assert message.locator("strong").inner_text() == "state" and message.locator("pre code").inner_text() == "x = 1"
    assert message.locator(".figure.reused dd").inner_text().strip() == "0"
    again = answered(page, script, "And then?", "Nothing.")
    reused = int(again.locator(".figure.reused dd").inner_text().split()[0])
    read = int(again.locator(".figure.read dd").inner_text().split()[0])
    assert reused > 0 and read < 30, "the second question is all that is read"
    assert texts(page)[0] == "What is kept?" and texts(page)[2:] == ["And then?", "Nothing."]
    assert page.title().startswith("What is kept?")


def test_another_answer_and_another_question_are_branches(page: Any, script: Script) -> None:
    first = answered(page, script, "One?", "First.")
    script.say("Second.")
    do(first, "regenerate")
    page.get_by_text("Second.").wait_for()
    assert texts(page) == ["One?", "Second."]
    assert page.locator(".siblings span").inner_text() == "2 / 2"
    do(page.locator(".message.assistant"), "before")
    assert texts(page) == ["One?", "First."]
    script.say("Third.")
    do(page.locator(".message.user"), "edit")
    page.locator("textarea.edit").fill("Two?")
    page.keyboard.press("Enter")
    page.get_by_text("Third.").wait_for()
    assert texts(page) == ["Two?", "Third."]
    complete(page.locator(".message.assistant"))
    do(page.locator(".message.user"), "before")
    assert texts(page) == ["One?", "First."], "the branch that was shown last"


def test_the_tree_says_what_branches_cost(page: Any, script: Script, server: Server) -> None:
    first = answered(page, script, "One?", "First answer, which is long enough to be known.")
    another = "Another, with a first line that is much longer than the panel is wide, so that it is cut off."
    script.say(another)
    do(first, "regenerate")
    page.locator(".message").get_by_text(another).wait_for()
    complete(page.locator(".message.assistant"))
    page.locator("[data-do=tree]").click()
    rows = page.get_by_role("treeitem")
    assert rows.count() == 3 and rows.nth(2).get_attribute("aria-current") == "true"
    costs = page.locator(".turn .cost:not(:empty)")
    costs.nth(1).wait_for()
    for cost in costs.all():
        told = cost.get_attribute("title")
        match = re.fullmatch(r"(\d+) tokens? to read, (\d+) of (\d+) known", told)
        assert match, told
        read, reused, tokens = map(int, match.groups())
        assert read + reused == tokens and read < 10 < tokens, "both answers are in the memory"
        place, panel = cost.bounding_box(), page.locator("#tree").bounding_box()
        assert place["x"] + place["width"] <= panel["x"] + panel["width"], "it is seen without scrolling"
    rows.nth(1).click()
    assert texts(page) == ["One?", "First answer, which is long enough to be known."]
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert texts(page) == ["One?", another], "by the keyboard, too"
    told = page.locator(".turn .cost").last.get_attribute("title")
    again = answered(page, script, "More?", "Yes.")
    known = int(told.split(", ")[1].split()[0])
    reused = int(again.locator(".figure.reused dd").inner_text().split()[0])
    assert abs(reused - known) <= 12, (told, reused)


def test_an_answer_is_stopped_and_goes_on(page: Any, script: Script) -> None:
    script.say("word " * 3000)
    ask(page, "Go")
    page.locator(".message.assistant.running .growing").get_by_text("word word").wait_for()
    page.locator("#send").click()
    page.locator(".message .note").get_by_text("Stopped.").wait_for()
    before = texts(page)[1]
    assert before.startswith("word") and len(before) < 14_000
    script.say("and on.")
    do(page.locator(".message.assistant"), "proceed")
    page.get_by_text("and on.").wait_for()
    assert texts(page)[1].startswith(before[:50]) and len(page.locator(".message").all()) == 2


def test_keys_alone(page: Any, script: Script) -> None:
    script.say("First.", "Second.")
    page.keyboard.type("One?")
    page.keyboard.press("Enter")
    page.get_by_text("First.").wait_for()
    complete(page.locator(".message.assistant"))
    page.keyboard.press("Alt+ArrowUp")
    page.keyboard.press("r")
    page.get_by_text("Second.").wait_for()
    complete(page.locator(".message.assistant"))
    page.keyboard.press("Alt+ArrowDown")
    page.keyboard.press("ArrowLeft")
    assert texts(page)[1] == "First."
    page.keyboard.press("Control+Shift+E")
    page.get_by_role("tree").wait_for()
    page.keyboard.press("Escape")
    page.get_by_role("tree").wait_for(state="hidden")
    page.keyboard.press("F1")
    page.get_by_text("Ctrl+Shift+E").wait_for()
    page.keyboard.press("Escape")
    page.keyboard.press("Control+Shift+O")
    assert page.locator(".message").count() == 0 and page.evaluate("document.activeElement.id") == "question"


def test_what_is_written_survives_a_reload(browsing: Browsing, server: Server, script: Script) -> None:  # noqa: F811
    context = browsing.context(server)
    page = browsing.visit(context, server)
    answered(page, script, "What stays?", ANSWER)
    page.wait_for_timeout(1000)
    page.close()
    page = browsing.visit(context, server)
    page.get_by_text("That is all.").wait_for()
    assert texts(page)[0] == "What stays?"
    again = answered(page, script, "And now?", "Still here.")
    assert int(again.locator(".figure.read dd").inner_text().split()[0]) < 30, "nothing was read twice"


def test_probabilities_and_going_on_from_another_word(page: Any, script: Script) -> None:
    page.locator("[data-do=probabilities]").click()
    message = answered(page, script, "Say it", "one two three")
    token = message.locator(".token").nth(2)
    token.click()
    alternatives = page.locator(".alternatives button:enabled")
    alternatives.first.wait_for()
    script.say(" and the rest")
    alternatives.first.click()
    page.locator(".siblings span").get_by_text("2 / 2").wait_for()
    page.get_by_text("and the rest").wait_for()


def test_a_tool_is_called_and_given_its_result(browsing: Browsing, server: Server, script: Script) -> None:  # noqa: F811
    page = browsing.open(server)
    page.evaluate("tools => localStorage.setItem('hybrid-settings', JSON.stringify({tools}))", json.dumps(TOOLS))
    page.reload()
    script.say(CALL)
    ask(page, "Add them")
    page.get_by_text("Calls add").wait_for()
    page.locator(".results textarea").fill("6")
    script.say("It is 6.")
    page.get_by_role("button", name="Send results").click()
    page.get_by_text("It is 6.").wait_for()
    assert page.locator(".message.tool").count() == 1


def test_thoughts_are_folded(browsing: Browsing, chat_model: Model, script: Script) -> None:  # noqa: F811
    with closing(served(chat_model, WITH_THOUGHTS)) as thinking:
        page = browsing.open(thinking)
        script.say("Let me see.\n</think>\n\nYes.")
        ask(page, "Is it?")
        page.get_by_text("Yes.").wait_for()
        summary = page.locator(".thoughts summary")
        assert "Thoughts" in summary.inner_text() and not page.get_by_text("Let me see.").is_visible()
        summary.click()
        assert page.get_by_text("Let me see.").is_visible()


def test_a_server_that_goes_away(browsing: Browsing, chat_model: Model, script: Script) -> None:  # noqa: F811
    browsing.expects("ERR_", "Failed to load")
    with closing(served(chat_model, WITH_TOOLS)) as other:
        page = browsing.open(other)
        answered(page, script, "One?", "First.")
    ask(page, "Two?")
    page.locator(".trouble").get_by_text("The server cannot be reached").wait_for()
    assert page.locator(".trouble button").inner_text() == "Try again"


def test_a_key_is_asked_for(browsing: Browsing, chat_model: Model) -> None:  # noqa: F811
    browsing.expects("401")
    with serving(chat_model, keys=("secret",)) as locked:
        page = browsing.open(locked)
        page.get_by_role("button", name="Enter the key").first.wait_for()


@pytest.mark.slow
def test_a_thousand_messages(browsing: Browsing, server: Server, script: Script) -> None:  # noqa: F811
    """Drawn in no time that anybody would notice, and still with the newest one in view."""
    page = browsing.open(server)
    page.evaluate(
        """async () => {
            const { Tree } = await import("/page/tree.js");
            const { ConversationView } = await import("/page/conversation_view.js");
            const tree = new Tree();
            for (let i = 0; i < 1000; i++) {
                const role = i % 2 ? "assistant" : "user";
                const content = `## Turn ${i}\\n\\n` + "Some **text** of it. ".repeat(40);
                tree.add(tree.head, { role, content, finish: "stop" });
            }
            const no = () => false;
            const view = new ConversationView({ state: () => null, probabilities: no, isSetting: no });
            const began = performance.now();
            view.show(tree);
            view.end();
            document.body.offsetHeight;
            window.took = performance.now() - began;
        }"""
    )
    page.wait_for_function("window.took")
    assert page.evaluate("window.took") < 5000, "on a machine that does other work as well"
    page.get_by_text("Turn 999").wait_for()
    assert page.locator(".message").count() == 1000
    assert page.locator(".message .prose").count() < 200, "what is far away is not drawn"


def test_a_phone_has_no_sideways_scroll(browsing: Browsing, server: Server, script: Script) -> None:  # noqa: F811
    page = browsing.open(server, viewport={"width": 360, "height": 740}, has_touch=True)
    answered(page, script, "What is kept?", f"{ANSWER}\n\n| a | b |\n|---|---|\n| {'wide ' * 30} | x |")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert page.locator("#history").is_hidden()
    page.locator("[data-do=history]").click()
    assert page.locator("#history").is_visible()
