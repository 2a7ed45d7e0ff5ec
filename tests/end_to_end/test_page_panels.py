"""The panels beside the chat: stored conversations, exported and imported; settings that requests carry."""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import Browsing, browsing, chromium  # noqa: F401  fixtures
from http_server import Server, serving, until

from hybrid.infer import LoadedModel

pytestmark = [pytest.mark.exhaustive, pytest.mark.page]

SETUP = """async () => {
  const { el } = await import("/page/dom.js");
  document.querySelectorAll("link[rel=stylesheet]").forEach((link) => link.remove());
  await Promise.all(["theme", "chat"].map((name) => new Promise((done) =>
    document.head.append(el("link", { rel: "stylesheet", href: `/page/${name}.css`, onload: done })))));
  document.body.replaceChildren(el("aside", { id: "history", class: "panel", "aria-label": "Conversations" },
    el("header", {}, el("h2", { text: "Conversations" }), el("span", { id: "history-close" })),
    el("div", { id: "history-new" }), el("p", { id: "history-note", class: "note", hidden: true }),
    el("ul", { id: "history-list" }), el("footer", { id: "history-foot" })));
  for (const name of ["history", "tree", "settings", "api"]) Object.assign(window, await import(`/page/${name}.js`));
  window.news = 0;
  window.renamed = [];
  const shelf = window.shelf = new History({
    onOpen: (chat) => { window.chat = chat; shelf.select(chat.id); },
    onNew: () => { window.news += 1; shelf.select(null); },
    onRename: (chat) => renamed.push(chat.title),
  });
  window.latest = await shelf.load();
  window.settings = new Settings();
}"""

TALK = """([question, created]) => {
  const tree = new Tree();
  const asked = tree.add(null, { role: "user", content: question, created });
  tree.add(asked.id, { role: "assistant", content: "Yes.", finish: "stop", created,
    logprobs: [{ token: "Yes", logprob: -0.5, bytes: [89, 101, 115], kind: "text",
      top_logprobs: [{ token: "No", logprob: -2, bytes: null }] }],
    timings: { cache_n: 1, prompt_n: 2, predicted_n: 3, predicted_per_second: 4.5 },
    usage: { prompt_tokens: 3, completion_tokens_details: { reasoning_tokens: 0 },
      cache: { processed: 2, reason: "new" } } });
  tree.add(asked.id, { role: "assistant", content: "No.", reasoning: "Hm.", finish: "tool_calls", created,
    toolCalls: [{ id: "c", name: "add", arguments: "{}" }] });
  const chat = { id: newId(), title: "", tree };
  shelf.save(chat);
  return chat.id;
}"""

KEPT = """() => new Promise((done) => {
  const request = indexedDB.open("hybrid", 1);
  request.onsuccess = () => {
    const all = request.result.transaction("chats").objectStore("chats").getAll();
    all.onsuccess = () => { request.result.close(); done(all.result); };
  };
})"""

DAY = 1_700_000_000_000


@pytest.fixture(scope="module")
def server(files: dict[str, Path]) -> Iterator[Server]:
    with LoadedModel.load(files["q8_0"], n_ctx=256, n_seq_max=4) as model, serving(model) as server:
        yield server


class Shelf:
    """A page with both panels."""

    def __init__(self, page: Any) -> None:
        self.page = page
        page.evaluate(SETUP)

    def reload(self) -> None:
        self.page.reload()
        self.page.evaluate(SETUP)

    def talk(self, question: str, created: int = DAY) -> str:
        found: str = self.page.evaluate(TALK, [question, created])
        self.row(question[:10]).wait_for()
        self.until("shelf.waiting.size === 0")
        return found

    def until(self, expression: str) -> None:
        """Playwright's own wait evaluates strings on the page, which the content policy forbids."""
        until(lambda: self.page.evaluate(f"Boolean({expression})"))

    def row(self, name: str) -> Any:
        return self.page.locator("#history-list li", has_text=name)

    @property
    def names(self) -> list[str]:
        found: list[str] = self.page.locator("#history-list .name").all_inner_texts()
        return found

    @property
    def kept(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.page.evaluate(KEPT)
        return found

    @property
    def note(self) -> str:
        found: str = self.page.locator("#history-note").inner_text()
        return found

    def bring(self, content: object) -> str:
        """Import a file; return the page's note about it."""
        text = content if isinstance(content, str) else json.dumps(content)
        self.page.evaluate("(text) => shelf.import(new File([text], 'chats.json'))", text)
        return self.note

    def export(self) -> dict[str, Any]:
        with self.page.expect_download() as waiting:
            self.page.get_by_role("button", name="Export all").click()
        found: dict[str, Any] = json.loads(Path(waiting.value.path()).read_text())
        return found


@pytest.fixture
def shelf(browsing: Browsing, server: Server) -> Shelf:
    return Shelf(browsing.blank(server))


# --- storage ---
def test_conversations_are_there_again(shelf: Shelf) -> None:
    assert shelf.page.evaluate("latest") is None
    shelf.talk("An older question")
    newer = shelf.talk("A question \n of  " + "many words " * 10, DAY + 1000)
    shelf.reload()
    assert shelf.names == [("A question of " + "many words " * 10)[:60].strip(), "An older question"]
    assert shelf.page.evaluate("latest.id") == newer
    shelf.row("older").locator(".open").click()
    shelf.until("window.chat")
    assert shelf.page.evaluate("chat.tree.path().map((node) => node.content)") == ["An older question", "No."]
    assert shelf.page.evaluate("chat.tree.children(chat.tree.path()[0].id).length") == 2
    assert shelf.page.locator("#history-list [aria-current=true]").inner_text().startswith("An older")
    assert shelf.page.evaluate("async () => { shelf.save(chat); await shelf.load; return shelf.live.size }") == 2
    shelf.until("shelf.waiting.size === 0")
    assert shelf.names[1] == "An older question", "a look at it makes it no newer"


def test_a_stream_is_not_written_at_every_token(shelf: Shelf) -> None:
    """It is written at its end, now and then in a long answer, and when the page closes."""
    n = shelf.page.evaluate("""async () => {
      let n = 0;
      const store = await shelf.store;
      const { merge } = store;
      store.merge = (record, known) => { n += 1; return merge(record, known); };
      const tree = new Tree();
      const node = tree.add(null, { role: "user", content: "" });
      for (let i = 0; i < 50; i += 1) {
        node.content += "x";
        shelf.save({ id: "one", title: "", tree });
        await new Promise((done) => setTimeout(done, 20));
      }
      const during = n;
      await new Promise((done) => setTimeout(done, 1500));
      return [during, n];
    }""")
    assert n[0] <= 1 and n[1] == n[0] + 1
    assert shelf.kept[0]["nodes"][0]["content"] == "x" * 50
    shelf.page.evaluate("""() => {
      const tree = new Tree();
      tree.add(null, { role: "user", content: "at the very end" });
      tree.add(tree.head, { role: "assistant", content: "It was" });
      shelf.save({ id: "two", title: "", tree });
    }""")
    shelf.reload()
    assert "at the very end" in shelf.names
    assert shelf.page.evaluate("latest.tree.path()[1].finish") == "stopped"


def test_two_tabs(shelf: Shelf, browsing: Browsing, server: Server) -> None:
    """Each tab's writes keep the other's additions, and removals stay removed."""
    shelf.talk("in both")
    other = Shelf(browsing.visit(shelf.page.context, server, "state"))
    for each, says in ((shelf, "of one"), (other, "of the other")):
        each.page.evaluate(
            """async (content) => {
              const [chat] = [...shelf.live.values()];
              chat.tree.add(chat.tree.head, { role: "user", content });
              shelf.save(chat);
            }""",
            says,
        )
        each.until("shelf.waiting.size === 0")
        until(lambda says=says: says in json.dumps(shelf.kept))
    other.page.evaluate("""() => {
      const [chat] = [...shelf.live.values()];
      chat.tree.remove(chat.tree.head);
      shelf.save(chat);
    }""")
    until(lambda: "of the other" not in json.dumps(shelf.kept))
    shelf.reload()
    assert [node["content"] for node in shelf.kept[0]["nodes"]] == ["in both", "Yes.", "No.", "of one"]


def test_a_tab_that_had_half_of_an_answer(shelf: Shelf, browsing: Browsing, server: Server) -> None:
    """It writes only its additions, even if it missed the other tab's messages."""
    shelf.page.evaluate("""() => {
      const tree = new Tree();
      tree.add(null, { role: "user", content: "Tell me" });
      window.answer = tree.add(tree.head, { role: "assistant", content: "Hal", revision: 3 });
      window.chat = { id: "one", title: "", tree };
      shelf.save(chat);
    }""")
    until(lambda: "Hal" in json.dumps(shelf.kept))
    other = Shelf(browsing.visit(shelf.page.context, server, "state"))
    other.page.evaluate("shelf.tabs.onmessage = null")
    shelf.page.evaluate(
        "Object.assign(answer, { content: 'Half and whole.', finish: 'stop', revision: 9 }); shelf.save(chat)"
    )
    until(lambda: "whole" in json.dumps(shelf.kept))
    other.page.evaluate("""() => {
      const [chat] = [...shelf.live.values()];
      chat.tree.add(chat.tree.head, { role: "user", content: "And?" });
      shelf.save(chat);
    }""")
    until(lambda: "And?" in json.dumps(shelf.kept))
    nodes = shelf.kept[0]["nodes"]
    assert [(node["content"], node["finish"]) for node in nodes[1:]] == [("Half and whole.", "stop"), ("And?", None)]
    # and the first tab shows the other's additions
    shelf.until("chat.tree.nodes.size === 3")


def test_another_name(shelf: Shelf) -> None:
    first = shelf.talk("What is it?")
    row = shelf.row("What is it?")
    row.locator(".open").dblclick()
    field = shelf.page.get_by_label("Name of the conversation")
    field.fill("not this")
    field.press("Escape")
    assert shelf.names == ["What is it?"]
    shelf.row("What is it?").hover()
    shelf.page.get_by_role("button", name="Rename What is it?").click()
    field.fill(" <b>It</b> ")
    field.press("Enter")
    shelf.until("renamed.length")
    assert shelf.names == ["<b>It</b>"]
    shelf.page.evaluate("(id) => shelf.save(shelf.live.get(id))", first)
    shelf.reload()
    assert shelf.names == ["<b>It</b>"] and shelf.page.evaluate("latest.title") == "<b>It</b>"
    # an empty name: back to the question
    shelf.page.locator("#history-list .open").focus()
    shelf.page.keyboard.press("F2")
    field.fill("")
    shelf.page.locator("#history-new button").focus()
    shelf.until("renamed.length")
    assert shelf.names == ["What is it?"] and shelf.kept[0]["title"] == ""


def test_removed_by_keys_alone(shelf: Shelf) -> None:
    shelf.talk("first question")
    last = shelf.talk("last question", DAY + 1)
    shelf.page.evaluate("(id) => { window.gone = shelf.live.get(id); shelf.select(id); }", last)
    shelf.page.locator("#history-list .open").first.focus()
    press = shelf.page.keyboard.press
    press("ArrowDown")
    press("ArrowUp")
    press("Delete")
    assert shelf.page.get_by_role("group", name="Remove last question?").is_visible()
    press("Escape")
    assert shelf.names == ["last question", "first question"]
    press("Enter")  # the focus is on the pressed entry
    press("Shift+Tab")
    press("Enter")
    shelf.until("news === 1")
    assert shelf.names == ["first question"] and len(shelf.kept) == 1
    assert shelf.page.evaluate("document.activeElement.innerText").startswith("first question")
    shelf.page.evaluate("shelf.save(gone)")  # an answer that is still growing
    shelf.page.wait_for_timeout(600)
    shelf.reload()
    assert shelf.names == ["first question"]


def test_a_browser_that_keeps_nothing(browsing: Browsing, server: Server) -> None:
    page = browsing.blank(server)
    page.context.add_init_script(
        "for (const name of ['indexedDB', 'localStorage'])"
        "  Object.defineProperty(window, name, { get() { throw new DOMException('refused', 'SecurityError'); } });"
    )
    page.reload()
    shelf = Shelf(page)
    assert "gone when the page is closed" in shelf.note
    shelf.talk("in memory")
    assert [chat["nodes"][0]["content"] for chat in shelf.export()["chats"]] == ["in memory"]
    page.evaluate("settings.open()")
    page.get_by_label("Temperature").fill("0.5")
    assert page.evaluate("settings.request()") == {"temperature": 0.5}
    page.keyboard.press("Escape")
    shelf.reload()
    assert shelf.names == []


# --- files ---
def test_out_and_in_again(shelf: Shelf, browsing: Browsing, server: Server) -> None:
    shelf.talk("one of them")
    shelf.talk("another, </script>", DAY + 5)
    file = shelf.export()
    assert (file["format"], file["version"], len(file["chats"])) == ("hybrid-chats", 1, 2)
    assert "2 conversations exported" in shelf.note
    other = Shelf(browsing.blank(server))
    assert other.bring(file) == "2 conversations imported."
    other.reload()
    assert other.names == ["another, </script>", "one of them"]

    def bare(chats: Any) -> Any:
        """Remove null values, which the check of fields may add."""
        if isinstance(chats, dict):
            return {name: bare(value) for name, value in chats.items() if value is not None}
        return [bare(each) for each in chats] if isinstance(chats, list) else chats

    again = other.export()
    key = lambda chat: chat["id"]
    assert bare(sorted(again["chats"], key=key)) == bare(sorted(file["chats"], key=key))
    # they exist already: import copies
    assert other.bring(file) == "2 conversations imported."
    assert len(other.names) == 4 and len({chat["id"] for chat in other.kept}) == 4


def _node(**more: Any) -> dict[str, Any]:
    return {
        "id": "a",
        "parent": None,
        "role": "user",
        "content": "x",
        "reasoning": "",
        "toolCalls": [],
        "created": DAY,
    } | more


def _chat(*nodes: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "id": "c",
        "title": "",
        "system": "",
        "created": 1,
        "changed": 2,
        "nodes": list(nodes) or [_node()],
        "head": None,
    } | more


def _file(*chats: Any, **more: Any) -> dict[str, Any]:
    return {"format": "hybrid-chats", "version": 1, "chats": list(chats)} | more


FIGURES = {"cache_n": 1, "prompt_n": 1, "predicted_n": 1}
HOSTILE: dict[str, tuple[Any, str]] = {
    "no JSON": ("<b>", "the file: not JSON"),
    "a list": ([], "the file: expected an object, found a list"),
    "another format": (_file(format="x"), 'format: expected hybrid-chats, found "x"'),
    "another version": (_file(version=2), "version: expected 1, found 2"),
    "no chats": ({"format": "hybrid-chats", "version": 1}, "chats: expected a list, found nothing"),
    "a chat that is none": (_file(_chat(), 3), "chats[1]: expected an object, found 3"),
    "a file without its text": (
        _file(_chat(_node(files=[{"name": "x"}]))),
        "chats[0].nodes[0].files[0].text: expected a text of at most 50000000 characters, found nothing",
    ),
    "nodes that are none": (_file(_chat(nodes={"length": 1})), "chats[0].nodes: expected a list, found an object"),
    "two ids": (_file(_chat(), _chat()), 'chats[1].id: "c" is there twice'),
    "a long id": (_file(_chat(id="x" * 65)), "chats[0].id: expected an id"),
    "an id that selects": (_file(_chat(_node(id='"] *'))), "chats[0].nodes[0].id: expected an id"),
    "two nodes": (_file(_chat(_node(), _node())), 'chats[0].nodes[1].id: "a" is there twice'),
    "a child first": (
        _file(_chat(_node(id="b", parent="a"), _node())),
        'chats[0].nodes[0].parent: no message "a" before it',
    ),
    "a cycle": (_file(_chat(_node(parent="a"))), 'chats[0].nodes[0].parent: no message "a" before it'),
    "a head of nothing": (_file(_chat(head="z")), 'chats[0].head: no message "z"'),
    "a role": (_file(_chat(_node(role="system"))), "chats[0].nodes[0].role: expected user or assistant or tool"),
    "text that is none": (_file(_chat(_node(content=["x"]))), "chats[0].nodes[0].content: expected a text"),
    "a date that is none": (_file(_chat(changed=1e300)), "chats[0].changed: expected a time"),
    "infinite": (
        json.dumps(_file(_chat(_node(timings=FIGURES | {"prompt_ms": 7})))).replace(": 7", ": 1e999"),
        "chats[0].nodes[0].timings.prompt_ms: expected a number",
    ),
    "half the timings": (
        _file(_chat(_node(timings={"cache_n": 1}))),
        "chats[0].nodes[0].timings.prompt_n: expected a number",
    ),
    "bytes": (
        _file(_chat(_node(logprobs=[{"token": "x", "logprob": 0, "bytes": [256]}]))),
        "chats[0].nodes[0].logprobs[0].bytes[0]: expected a byte, found 256",
    ),
    "a call": (_file(_chat(_node(toolCalls=[None]))), "chats[0].nodes[0].toolCalls[0]: expected an object, found null"),
    "many nodes": (_file(_chat(nodes=[0] * 200_001)), "chats: 200001 messages, at most 200000"),
}


def test_hostile_files(shelf: Shelf) -> None:
    """Each file is refused as a whole, with the path of the bad field; nothing is imported, not even a valid
    conversation in it."""
    shelf.talk("my own")
    good = _chat(id="good")
    for name, (content, message) in HOSTILE.items():
        content = copy.deepcopy(content)
        if isinstance(content, dict) and isinstance(content.get("chats"), list) and name != "many nodes":
            content["chats"].append(good)
        says = shelf.bring(content)
        assert says.startswith("Nothing was imported. ") and message in says, (name, says)
    says = shelf.page.evaluate("""async () => {
      await shelf.import(new File([new Uint8Array(50e6 + 1)], "large.json"));
      return document.querySelector("#history-note").textContent;
    }""")
    assert "51 MB, at most 50 are taken" in says
    assert shelf.names == ["my own"] and len(shelf.kept) == 1


def test_unknown_fields_are_dropped(shelf: Shelf) -> None:
    text = json.dumps(_file(_chat(_node(content="<img src=x onerror=alert(1)>", extra=1), extra=2), extra=3))
    text = text.replace('"extra": 1', '"__proto__": {"polluted": 1}')
    assert shelf.bring(text) == "1 conversation imported."
    assert shelf.names == ["<img src=x onerror=alert(1)>"]
    assert "extra" not in shelf.kept[0] and "__proto__" not in shelf.kept[0]["nodes"][0]
    assert shelf.page.evaluate("({}).polluted") is None
    shelf.page.locator("#history-list .open").click()
    shelf.until("window.chat")


def test_what_cannot_be_written_is_said(shelf: Shelf) -> None:
    shelf.page.evaluate("""async () => {
      const store = await shelf.store;
      store.put = store.merge = () => Promise.reject(new DOMException("no room", "QuotaExceededError"));
    }""")
    shelf.talk("too much")
    shelf.page.get_by_text("Not kept: no room.").wait_for()
    assert shelf.bring(_file(_chat())) == "Nothing was imported. no room"
    assert shelf.names == ["too much"]


# --- settings ---
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}]
FILLED = {
    "Instructions": "Be brief.",
    "Temperature": "0,5",
    "Top-p": "0.9",
    "Top-k": "40",
    "Min-p": ".05",
    "Repeat penalty": "1.1",
    "Seed": "7",
    "Max tokens": "3",
    "JSON schema": json.dumps(SCHEMA),
    "Tools": json.dumps(TOOLS),
}
SENT = {
    "temperature": 0.5,
    "top_p": 0.9,
    "top_k": 40,
    "min_p": 0.05,
    "repeat_penalty": 1.1,
    "seed": 7,
    "max_tokens": 3,
    "response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA}},
    "tools": TOOLS,
    "chat_template_kwargs": {"enable_thinking": False},
}
SEND = """(fields) => streamChat({ messages: [{ role: "user", content: "Hi" }], ...fields, ...settings.request() },
  { onDelta: () => {} }).then(() => null, ({ status, param, message }) => ({ status, param, message }))"""


def test_settings_are_kept_and_sent(shelf: Shelf) -> None:
    page = shelf.page
    assert page.evaluate("[settings.request(), settings.system]") == [{}, ""]
    page.evaluate("settings.open()")
    for label, text in FILLED.items():
        page.get_by_label(label, exact=True).fill(text)
    thinking = page.locator("#set-think")
    page.wait_for_function("document.querySelector('#set-think').closest('.field').hidden")
    page.evaluate("document.querySelector('#set-think').closest('.field').hidden = false")  # as of a model that thinks
    thinking.select_option("off")
    page.get_by_role("button", name="Done").click()
    assert not page.locator("dialog").is_visible()
    shelf.reload()
    assert page.evaluate("settings.request()") == SENT
    assert page.evaluate("settings.system") == "Be brief."
    with page.expect_request("**/v1/chat/completions") as waiting:
        page.evaluate(SEND, {})
    assert {name: waiting.value.post_data_json[name] for name in SENT} == SENT
    page.evaluate("settings.open()")
    page.get_by_role("button", name="All as the model has it").click()
    assert set(page.evaluate("settings.request()")) == {"response_format", "tools", "chat_template_kwargs"}


CANNOT_BE_MEANT = (
    ("Temperature", "warm", "A number is expected"),
    ("Top-k", "1.5", "A whole number is expected"),
    ("JSON schema", "{", "Not JSON ("),
    ("JSON schema", "[1]", "a JSON object, is expected"),
    ("Tools", "{}", "A JSON list of tools is expected"),
)


def test_what_cannot_be_meant(shelf: Shelf) -> None:
    """The error appears when the field loses the focus, and the value is not sent."""
    page = shelf.page
    page.evaluate("settings.open()")
    for label, text, message in CANNOT_BE_MEANT:
        field = page.get_by_label(label, exact=True)
        field.fill(text)
        field.blur()
        said = page.locator(".refused:visible")
        assert message in said.inner_text() and "left out" in said.inner_text()
        assert field.get_attribute("aria-invalid") == "true"
        assert said.get_attribute("id") in (field.get_attribute("aria-describedby") or "").split()
        assert page.evaluate("settings.request()") == {}
        field.fill("")
        field.blur()
        assert said.count() == 0


REFUSED = (
    ("Repeat penalty", "-1", "repeat_penalty", "repeat_penalty"),
    ("Max tokens", "-9", "max_tokens", "max_tokens"),
    ("JSON schema", '{"type": "none"}', "schema", "response_format"),
    ("Tools", "[{}]", "tools", "tools"),
)


def test_what_the_server_refuses_is_shown(shelf: Shelf, browsing: Browsing) -> None:
    page = shelf.page
    browsing.expects("400")
    for label, text, name, part in REFUSED:
        page.evaluate("settings.open()")
        page.get_by_label(label, exact=True).fill(text)
        page.keyboard.press("Escape")
        refused = page.evaluate(SEND, {})
        assert refused["status"] == 400 and page.evaluate("(param) => settings.has(param)", refused["param"]), refused
        page.evaluate("({ param, message }) => settings.blame(param, message)", refused)
        assert page.evaluate("document.activeElement.id") == f"set-{name}"
        assert part in page.locator(f"#set-{name}-trouble").inner_text()
        page.get_by_label(label, exact=True).fill("")
        page.keyboard.press("Tab")
        assert page.locator(f"#set-{name}-trouble").is_hidden()
        page.keyboard.press("Escape")
    for param, known in (
        ("tools/2/function/name", True),
        ("response_format.json_schema", True),
        ("chat_template_kwargs.enable_thinking", True),
        ("messages", False),
        ("constructor", False),
        (None, False),
    ):
        assert page.evaluate("(param) => settings.has(param)", param) is known, param


SPOILED = ("", "{", "null", "3", "[]", '"x"', '{"temperature": 1}', '{"think": "perhaps"}',
           '{"__proto__": {"seed": "1"}}', json.dumps({"tools": "x" * 1_000_001}))  # fmt: skip


def test_settings_that_were_spoiled(shelf: Shelf) -> None:
    for kept in SPOILED:
        shelf.page.evaluate("(kept) => localStorage.setItem('hybrid-settings', kept)", kept)
        found = shelf.page.evaluate("[new Settings()].map((settings) => [settings.request(), settings.system])")
        assert found == [[{}, ""]], kept[:40]
    shelf.reload()
    assert shelf.page.evaluate("[settings.request(), settings.system]") == [{}, ""]


def test_colours_and_key(shelf: Shelf) -> None:
    page = shelf.page
    page.evaluate("settings.open('key')")
    assert page.evaluate("document.activeElement.id") == "set-key"
    page.evaluate("() => { window.keys = 0; addEventListener('hybrid-key', () => { keys += 1; }); }")
    page.get_by_label("Key of the server").fill("secret")
    page.keyboard.press("Tab")
    page.get_by_label("Colours").select_option("dark")
    assert page.evaluate("[keys, document.documentElement.dataset.theme, localStorage['hybrid-theme']]") == [
        1,
        "dark",
        "dark",
    ]
    with page.expect_request("**/props") as waiting:
        page.evaluate("get('props')")
    assert waiting.value.headers["authorization"] == "Bearer secret"
    shelf.reload()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.evaluate("settings.open()")
    assert page.get_by_label("Key of the server").input_value() == "", "it is in no field, and in no storage that lasts"
    assert "secret" not in page.evaluate("JSON.stringify(localStorage)")
    page.get_by_label("Colours").select_option("")
    assert page.evaluate("[document.documentElement.dataset.theme, localStorage['hybrid-theme']]") == [None, None]


def test_panels_fit(shelf: Shelf) -> None:
    page = shelf.page
    shelf.talk("word" * 50)
    shelf.bring("{" + "x" * 500)
    page.evaluate("settings.open()")
    for width in (360, 1280):
        page.set_viewport_size({"width": width, "height": 740})
        for selector in ("#history", "#history-note", "#history-list", "dialog .fields"):
            inner, outer = page.locator(selector).evaluate("(e) => [e.scrollWidth, e.clientWidth]")
            assert inner <= outer, (width, selector)
