"""The pages of a server with several models: their menu and its costs, models that are loaded or fail, counters."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from adapters import write_adapter
from browser import Browsing, browsing, chromium  # noqa: F401  fixtures
from chat_page import PHONE, WIDE, ChatPage
from http_server import WAIT, until
from page_looks import CONTRASTS, NAMELESS
from scripted_chat import WITH_TOOLS, Script
from several_models import Household, household

from hybrid.cli.options.server_options import Keeping
from hybrid.cli.serve.models.settings_file import ModelTable
from hybrid.quant.ggml.errors import FormatError

pytestmark = [pytest.mark.exhaustive, pytest.mark.page]

ASLEEP = {"main": "asleep", "style": "asleep", "eyes": "asleep"}


@pytest.fixture(scope="module")
def house(
    files: dict[str, Path], files_of_eyes: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Household]:
    """A model with an adapter, and one that sees. Their texts are on disk while they sleep."""
    folder = tmp_path_factory.mktemp("models")
    write_adapter(folder / "style.gguf", files["q8_0"], 4, seed=1, size=0.2)
    (folder / "template.jinja").write_text(WITH_TOOLS)
    options = {"chat-template": str(folder / "template.jinja"), "lora": [f"style={folder / 'style.gguf'}"]}
    table = ModelTable("main", None, (), False, None, options, "x.toml [main]")
    names = [f"main={files['q8_0']}", f"eyes={files_of_eyes[0]}"]
    server = household(names, tables=(table,), keeping=Keeping(state_dir=folder / "texts"))
    yield server
    server.close()


@pytest.fixture
def server(house: Household) -> Iterator[Household]:
    """All models sleep, as after the start."""
    yield house
    for entry in house.router.entries:
        house.post("/models/unload", model=entry.name)


class ModelsPage(ChatPage):
    """The chat page; button: of the menu of models."""

    def __init__(self, page: Any) -> None:
        super().__init__(page)
        self.button = page.locator("#model")
        self.button.wait_for()

    def notes(self) -> dict[str, str]:
        """What the open menu says of each model."""
        rows = self.page.locator("#models button").all_inner_texts()
        return dict(row.split("\n", 1) for row in rows)

    def choose(self, name: str) -> None:
        self.button.click()
        self.page.locator("#models button", has_text=name).first.click()
        self.page.locator(f"#question[placeholder='Ask {name}']").wait_for()


def opened(browsing: Browsing, server: Household, **options: Any) -> ModelsPage:
    return ModelsPage(browsing.open(server, **{"viewport": WIDE, **options}))  # type: ignore[arg-type]


@contextmanager
def replaced(server: Household, name: str, opener: Any) -> Iterator[None]:
    """Loads a model in another way: `opener(reporter, given)`, given: the usual way."""
    entry = server.router.find(name)
    given = entry.opener
    entry.opener = lambda reporter: opener(reporter, given)
    try:
        yield
    finally:
        entry.opener = given


def test_a_look_loads_nothing(browsing: Browsing, server: Household) -> None:
    chat = opened(browsing, server)
    assert chat.button.get_attribute("aria-label") == "Model: main · asleep"
    chat.button.focus()
    chat.page.keyboard.press("Enter")
    chat.page.locator("#models button:focus", has_text="main").wait_for()
    assert chat.notes() == {"main": "asleep", "main:style": "asleep", "eyes": "takes pictures · asleep"}
    assert chat.button.get_attribute("aria-expanded") in (None, "true")
    chat.page.keyboard.press("Escape")
    assert chat.page.locator("#models").is_hidden() and chat.focused.get_attribute("id") == "model"
    chat.page.get_by_role("button", name="Settings").click()
    chat.page.get_by_role("button", name="Done").click()
    assert server.states() == ASLEEP


def test_chosen_by_keys(browsing: Browsing, server: Household) -> None:
    """The choice is the conversation's, and of the next new one; pictures are offered where the model takes them."""
    chat = opened(browsing, server)
    pictures = chat.page.get_by_role("button", name="Attach pictures")
    assert pictures.is_hidden()
    chat.button.focus()
    chat.page.keyboard.press("Enter")
    chat.page.locator("#models button:focus", has_text="main").wait_for()
    for key in ("ArrowDown", "ArrowDown", "ArrowDown", "ArrowUp", "ArrowDown", "Enter"):
        chat.page.keyboard.press(key)
    pictures.wait_for()
    assert chat.focused.get_attribute("placeholder") == "Ask eyes"
    assert "eyes answers from now on" in chat.spoken.inner_text()
    chat.page.reload()
    assert ModelsPage(chat.page).button.inner_text() == "eyes · asleep"
    chat.choose("main")
    assert pictures.is_hidden() and server.states() == ASLEEP


def test_loaded_for_an_answer(browsing: Browsing, server: Household, script: Script) -> None:
    go, asked = threading.Event(), list[Any]()

    @contextmanager
    def slowly(reporter: Any, given: Any) -> Iterator[Any]:
        go.wait(WAIT)
        with given(reporter) as served:
            yield served

    chat = opened(browsing, server)
    chat.page.on("request", lambda request: asked.append(request.post_data_json) if request.post_data else None)
    script.say("Fine.")
    with replaced(server, "main", slowly):
        answer = chat.ask("What is a state?", wait=False)
        answer.get_by_text("main is being loaded").wait_for()
        assert chat.spoken.inner_text() == "main is being loaded."
        go.set()
        chat.until_ended()
    assert chat.texts == ["What is a state?", "Fine."]
    chat.page.locator("#model", has_text="main").and_(chat.page.locator(":not(:has-text('asleep'))")).wait_for()
    chat.button.click()
    chat.page.locator("#models button", has_text="tokens are read").nth(2).wait_for()
    notes = chat.notes()
    read, style = notes["main"], notes["main:style"]
    assert read.startswith("loaded · ") and style.startswith("loaded · ") and read != style
    few, every = (int(note.split()[2]) for note in (read, style))
    assert few < 10 < every and f"{every} of {every} tokens" in style, "another adapter reads all"
    assert notes["eyes"].startswith("takes pictures · asleep · about ")
    assert server.states() == {**ASLEEP, "main": "loaded", "style": "loaded"}
    chat.page.keyboard.press("Escape")
    chat.choose("main:style")
    chat.answered(script, "And with style?")
    assert chat.page.locator(".message.assistant h2").all_inner_texts() == ["main", "main:style"]
    named = [body["model"] for body in asked]
    assert {"main", "main:style", "eyes"} == set(named) and named[0] == "main" and named[-1] == "main:style"
    # back from a file, as it went
    chat.until_kept("main:style", "Fine.")
    file = chat.exported()
    (kept,) = file["chats"]
    assert kept["model"] == "main:style"
    assert [node["model"] for node in kept["nodes"] if node["role"] == "assistant"] == ["main", "main:style"]
    chat.choose("eyes")
    chat.page.get_by_role("button", name="New conversation (").click()
    assert chat.button.inner_text() == "eyes · asleep"
    file["chats"][0].update(title="Brought", model="main")
    chat.bring(file)
    chat.open("Brought")
    chat.page.locator("#question[placeholder='Ask main']").wait_for()
    file["chats"][0]["model"] = "another server's"
    chat.bring({**file, "chats": [{**file["chats"][0], "title": "Elsewhere"}]})
    chat.open("Elsewhere")
    chat.page.locator("#question[placeholder='Ask eyes']").wait_for()  # the last choice


def test_read_before_it_slept(browsing: Browsing, server: Household, script: Script) -> None:
    chat = opened(browsing, server)
    chat.answered(script, "What is a state?")
    server.post("/models/unload", model="main")
    chat.button.click()
    chat.page.locator("#models", has_text="comes from disk").wait_for()
    notes = chat.notes()
    assert notes["main"] == "asleep · what it has read comes from disk"
    assert notes["main:style"].startswith("asleep · about ") and notes["eyes"].endswith("tokens are read")
    chat.page.keyboard.press("Escape")
    chat.open_tree()
    chat.again(1, script, "Another.")
    server.post("/models/unload", model="main")
    chat.do(0, "copy")
    chat.page.reload()
    chat.open_tree()
    cost = chat.branch("Another.").locator(".cost")
    cost.filter(has_text="?").wait_for()
    assert cost.get_attribute("title") == "The model is asleep"
    assert server.states() == ASLEEP


def test_a_model_that_fails(browsing: Browsing, server: Household, script: Script) -> None:
    browsing.expects("400")

    def broken(*_: Any) -> Any:
        raise FormatError("x.gguf: is broken.")

    chat = opened(browsing, server)
    chat.choose("eyes")
    with replaced(server, "eyes", broken):
        answer = chat.ask("What is it?")
        answer.get_by_text("eyes does not load: x.gguf: is broken.").wait_for()
    chat.page.locator("#model", has_text="eyes · failed").wait_for()
    chat.button.click()
    assert chat.notes()["eyes"] == "takes pictures · failed · x.gguf: is broken."
    chat.page.keyboard.press("Escape")
    chat.choose("main")
    script.say("Fine.")
    chat.do(1, "regenerate")
    chat.until_shown("Fine.")
    chat.until_ended()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_a_phone(browsing: Browsing, server: Household, scheme: str) -> None:
    chat = opened(browsing, server, viewport=PHONE, color_scheme=scheme, has_touch=True)
    chat.choose("eyes")
    chat.button.tap()
    chat.page.locator("#models", has_text="takes pictures").wait_for()
    box = chat.page.locator("#models").bounding_box()
    assert box["x"] >= 0 and box["x"] + box["width"] <= 360 and box["y"] > 0
    assert box["y"] + box["height"] <= chat.button.bounding_box()["y"]
    assert chat.page.evaluate(CONTRASTS) == [] and chat.page.evaluate(NAMELESS) == []
    assert chat.page.evaluate("document.documentElement.scrollWidth") <= 360
    chat.page.evaluate("document.getElementById('model').textContent = 'a-name-without-end-'.repeat(9)")
    assert chat.button.bounding_box()["y"] == chat.page.locator("#send").bounding_box()["y"], "in one row"
    for part in ("#model", "#models button >> nth=0"):
        assert chat.page.locator(part).bounding_box()["height"] >= 40


def test_the_state_of_each(browsing: Browsing, server: Household) -> None:
    page = browsing.open(server)  # type: ignore[arg-type]
    page = browsing.open(server, "state")  # type: ignore[arg-type]
    page.locator("#status", has_text="no model is loaded").wait_for()
    assert page.locator("#state").is_hidden()
    asked = {"prompt": "A state", "ignore_eos": True}
    server.post("/v1/completions", model="main", max_tokens=5, **asked)
    server.post("/v1/completions", model="eyes", max_tokens=8, **asked)
    drawn = page.locator("#sums dd").first
    drawn.filter(has_text="13").wait_for()
    assert page.locator("#about").inner_text().startswith("2 of 2 are loaded")
    assert page.locator("#streams-note").inner_text() == "4 places, all free"
    choice = page.get_by_label("Model")
    assert choice.locator("option").all_inner_texts() == ["All models", "main", "eyes"]
    for name, n in (("main", "5"), ("eyes", "8")):
        choice.select_option(name)
        page.locator("#model", has_text=name).wait_for()
        drawn.filter(has_text=n).wait_for()
        assert page.locator("#streams-note").inner_text() == "2 places, all free"
    page.reload()
    page.locator("#model", has_text="eyes").wait_for()
    used = server.router.find("eyes").last_used
    server.post("/models/unload", model="eyes")
    page.locator("#status", has_text="asleep").wait_for()
    page.wait_for_timeout(1500)
    assert server.states() == {**ASLEEP, "main": "loaded", "style": "loaded"}
    until(lambda: server.router.find("eyes").last_used == used)
