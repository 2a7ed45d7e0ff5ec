"""The chat page as a person uses it in a browser; a scripted model answers."""

import json
import re
from contextlib import closing

import pytest
from browser import Browsing, browsing, chromium  # noqa: F401  fixtures
from chat_page import ChatPage, chat, long_chat, opened, server  # noqa: F401  fixtures
from http_server import Server, drawing_held
from scripted_chat import CALL, TOOLS, WITH_THOUGHTS, Script, served

from hybrid.infer import LoadedModel

pytestmark = [pytest.mark.exhaustive, pytest.mark.page]


def test_another_answer_and_another_question_are_branches(chat: ChatPage, script: Script) -> None:
    chat.answered(script, "One?", "First.")
    chat.again(1, script, "Second.")
    assert chat.texts == ["One?", "Second."]
    assert chat.page.locator(".siblings span").inner_text() == "2 / 2"
    chat.do(1, "before")
    assert chat.texts == ["One?", "First."]
    script.say("Third.")
    chat.do(0, "edit")
    chat.page.locator("textarea.edit").fill("Two?")
    chat.page.keyboard.press("Enter")
    chat.until_shown("Third.")
    chat.until_ended()
    assert chat.texts == ["Two?", "Third."]
    chat.do(0, "before")
    assert chat.texts == ["One?", "First."], "the branch that was shown last"


def test_a_question_is_answered_again(chat: ChatPage, script: Script) -> None:
    """Also after its answer was removed."""
    chat.answered(script, "One?", "First.")
    script.say("Second.")
    chat.do(0, "regenerate")
    chat.until_shown("Second.")
    chat.until_ended()
    assert chat.messages.nth(1).locator(".siblings span").inner_text() == "2 / 2"
    chat.do(1, "remove")
    chat.do(1, "remove")
    assert chat.texts == ["One?"]
    script.say("Third.")
    chat.do(0, "regenerate")
    chat.until_shown("Third.")
    chat.until_ended()
    assert chat.texts == ["One?", "Third."]


def test_enter_while_an_answer_is_written_sends_the_text_afterwards(
    chat: ChatPage, server: Server, script: Script
) -> None:
    """A change of the text prevents that."""
    words = " ".join(f"word{i}" for i in range(60))
    script.say(words)
    script.say("Second.")
    note = chat.page.locator("#composer-note")
    with drawing_held(server):
        chat.ask("One?", wait=False)
        chat.field.fill("Two?")
        chat.field.press("Enter")
        note.wait_for()
        assert "sent when the answer is complete" in note.inner_text()
    chat.until_shown("Second.")
    chat.until_ended()
    assert chat.texts == ["One?", words, "Two?", "Second."] and not note.is_visible()
    script.say(words)
    with drawing_held(server):
        chat.ask("Three?", wait=False)
        chat.field.fill("Four")
        chat.field.press("Enter")
        note.wait_for()
        chat.field.press("!")
        assert not note.is_visible()
    chat.until_ended()
    assert chat.field.input_value() == "Four!" and len(chat.texts) == 6


def test_a_sample_is_put_into_the_field(chat: ChatPage) -> None:
    sample = chat.page.locator("#welcome .choices button").first
    sample.click()
    assert chat.field.input_value() == sample.inner_text() and chat.messages.count() == 0
    assert chat.page.locator("h2", has_text="tiny").count() == 1


def test_the_tree_says_what_branches_cost(chat: ChatPage, script: Script) -> None:
    chat.answered(script, "One?", "First answer, which is long enough to be known.")
    another = "Another, with a first line that is much longer than the panel is wide, so that it is cut off."
    chat.again(1, script, another)
    page = chat.page
    chat.open_tree()
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
    assert chat.texts == ["One?", "First answer, which is long enough to be known."]
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert chat.texts == ["One?", another], "by the keyboard, too"
    told = page.locator(".turn .cost").last.get_attribute("title")
    chat.answered(script, "More?", "Yes.")
    known = int(told.split(", ")[1].split()[0])
    assert abs(chat.figures()["reused"] - known) <= 12, told


def test_the_gauge_shows_how_much_of_the_context_is_taken(chat: ChatPage, script: Script) -> None:
    """After each answer, and for the branch and the conversation that are shown; also after a reload."""
    gauge = chat.page.get_by_role("meter", name="Context in use")

    def shown() -> list[int]:
        return [int(each) for each in re.findall(r"\d+", gauge.inner_text().replace("\u202f", ""))]

    def taken() -> int:
        return sum(chat.figures().values())

    chat.page.get_by_role("heading", name="tiny").wait_for()
    assert not gauge.is_visible(), "nothing is taken"
    chat.answered(script, "One?", "First.")
    first = taken()
    assert shown() == [first, 4096]
    chat.answered(script, "And two?", "A second answer, which is longer.")
    second = taken()
    assert first < second == shown()[0]
    usage = next(node["usage"] for node in chat.exported()["chats"][0]["nodes"] if "second" in node["content"])
    assert second == usage["prompt_tokens"] + usage["completion_tokens"]
    assert gauge.get_attribute("aria-valuetext") == gauge.inner_text() == f"{second} of 4\u202f096 tokens"
    chat.again(1, script, "Other, of some more words.")
    other = taken()
    assert first < other == shown()[0] < second
    chat.do(1, "before")
    assert shown()[0] == second
    chat.page.keyboard.press("Control+Shift+O")
    assert not gauge.is_visible()
    file = long_chat(4)
    timings = {"cache_n": 3000, "prompt_n": 400, "predicted_n": 81}
    file["chats"][0]["nodes"][1]["timings"] = timings
    file["chats"][0]["nodes"][3]["timings"] = timings | {"prompt_n": 900}
    chat.bring(file)
    chat.open("Long")
    gauge.get_by_text("Nearly full: 3\u202f981 of 4\u202f096 tokens").wait_for()
    assert [gauge.get_attribute(f"aria-value{name}") for name in ("now", "max")] == ["3981", "4096"]
    assert gauge.get_attribute("aria-valuetext") == gauge.inner_text()
    colour = "(gauge) => getComputedStyle(gauge).color"
    warned = gauge.evaluate(colour)
    chat.do(3, "remove")
    assert shown() == [3481, 4096] and gauge.evaluate(colour) != warned, "85 % are 3481.6"
    chat.page.reload()
    gauge.wait_for()


def test_an_answer_is_stopped_and_goes_on(chat: ChatPage, script: Script) -> None:
    script.say("word " * 3000)
    answer = chat.ask("Go", wait=False)
    answer.locator(".growing").get_by_text("word word").wait_for()
    chat.page.locator("#send").click()
    chat.page.locator(".message .note").get_by_text("Stopped.").wait_for()
    before = chat.texts[1]
    assert before.startswith("word") and len(before) < 14_000
    script.say("and on.")
    chat.do(1, "proceed")
    chat.until_shown("and on.")
    chat.until_ended()
    assert chat.texts[1].startswith(before[:50]) and chat.messages.count() == 2


def test_keys_alone(chat: ChatPage, script: Script) -> None:
    script.say("First.", "Second.")
    page, press = chat.page, chat.page.keyboard.press
    page.keyboard.type("One?")
    press("Enter")
    chat.until_shown("First.")
    chat.until_ended()
    press("Alt+ArrowUp")
    press("r")
    chat.until_shown("Second.")
    chat.until_ended()
    press("Alt+ArrowDown")
    press("ArrowLeft")
    assert chat.texts[1] == "First."
    press("Control+Shift+E")
    chat.tree.wait_for()
    press("Escape")
    chat.tree.wait_for(state="hidden")
    press("F1")
    page.get_by_text("Ctrl+Shift+E").wait_for()
    press("Escape")
    press("Control+Shift+O")
    assert chat.messages.count() == 0 and chat.focused.get_attribute("id") == "question"


def test_probabilities_and_going_on_from_another_word(chat: ChatPage, script: Script) -> None:
    chat.page.locator("[data-do=probabilities]").click()
    chat.answered(script, "Say it", "one two three").locator(".token").nth(2).click()
    alternatives = chat.page.locator(".alternatives button:enabled")
    alternatives.first.wait_for()
    script.say(" and the rest")
    alternatives.first.click()
    chat.page.locator(".siblings span").get_by_text("2 / 2").wait_for()
    chat.until_shown("and the rest")


def test_a_tool_is_called_and_given_its_result(chat: ChatPage, script: Script) -> None:
    page = chat.page
    page.evaluate("tools => localStorage.setItem('hybrid-settings', JSON.stringify({tools}))", json.dumps(TOOLS))
    page.reload()
    chat.answered(script, "Add them", CALL)
    chat.until_shown("Calls add")
    page.locator(".results textarea").fill("6")
    script.say("It is 6.")
    page.get_by_role("button", name="Send results").click()
    chat.until_shown("It is 6.")
    assert page.locator(".message.tool").count() == 1


def test_thoughts_are_folded(browsing: Browsing, chat_model: LoadedModel, script: Script) -> None:
    """A selection in them stays while they grow."""
    with closing(served(chat_model, WITH_THOUGHTS)) as thinking:
        chat = opened(browsing, thinking)
        thoughts = " ".join(f"thought{i}" for i in range(60))
        script.say(f"Let me see. {thoughts}\n</think>\n\nYes.")
        answer = chat.ask("Is it?", wait=False)
        summary = answer.locator(".thoughts summary")
        summary.click()
        begun = answer.locator(".thought-text")
        begun.get_by_text("Let me see.").wait_for()
        chat.page.evaluate("window.first = document.querySelector('.thought-text').firstChild")
        chat.until_ended()
        assert "Thoughts" in summary.inner_text() and begun.inner_text().endswith("thought59")
        assert chat.page.evaluate("first.isConnected"), "what is there is not drawn again"
        assert chat.texts[1] == "Yes."
        chat.answered(script, "And so?", "Hm.\n</think>\n\nNo.")
        assert not chat.page.get_by_text("Hm.").is_visible()
