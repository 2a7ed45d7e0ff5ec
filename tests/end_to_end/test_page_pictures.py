"""Pictures that go with questions of the chat page: pasted, dropped, chosen, shown, sent, kept, edited, exported."""

import base64
import json
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from browser import Browsing, browsing, chromium  # noqa: F401  fixtures
from chat_page import PHONE, WIDE, ChatPage, chat, opened, server  # noqa: F401  fixtures
from http_server import Server, until
from page_camera import COLOURS, FakeEyes, decoded, encoded, give, squares
from page_looks import CONTRASTS, NAMELESS, STOPS
from PIL import Image
from scripted_chat import post
from seeing_models import seeing_model, tower_of

from hybrid.cli.serve.jobs import Maker, ServerDefaults
from hybrid.cli.serve.pictures.sight import Sight
from hybrid.infer import LoadedModel
from hybrid.infer.answers.asking.eyes import Eyes

pytestmark = [pytest.mark.exhaustive, pytest.mark.page]

PNG = ("a.png", "image/png", encoded(squares(61, 47)))
WEBP = ("b.webp", "image/webp", encoded(squares(33, 70), "WEBP", lossless=True))


@pytest.fixture
def eyes(chat: ChatPage) -> FakeEyes:
    return FakeEyes(chat)


def attached(chat: ChatPage, within: str = "#composer") -> list[str]:
    """The names of the pictures in the chips."""
    found: list[str] = [each.get_attribute("alt") for each in chat.page.locator(f"{within} .chip img").all()]
    return found


def until_attached(chat: ChatPage, name: str, within: str = "#composer") -> None:
    chat.page.locator(within).get_by_role("button", name=f"Remove {name}", exact=True).wait_for()


def test_pasted_dropped_and_chosen(chat: ChatPage, eyes: FakeEyes) -> None:
    """All go with the question, before its words; small ones as they are, byte for byte."""
    page = chat.page
    give(chat.field, "paste", [PNG])
    until_attached(chat, "a.png")
    chat.spoken.filter(has_text="With the question: a.png.").wait_for()
    give(page.locator("#scroller"), "drop", [WEBP, ("no.png", "image/png", PNG[2])])
    until_attached(chat, "no.png")
    page.get_by_role("button", name="Remove no.png").click()
    with page.expect_file_chooser() as waiting:
        page.get_by_role("button", name="Attach pictures").click()
    assert waiting.value.is_multiple()
    assert page.locator("#composer input[type=file]").get_attribute("accept") == "image/*"
    waiting.value.set_files([{"name": "c.png", "mimeType": "image/png", "buffer": PNG[2]}])
    until_attached(chat, "c.png")
    assert attached(chat) == ["a.png", "b.webp", "c.png"]
    chat.ask("What is this?")
    assert attached(chat) == []
    parts = eyes.requests[-1]["messages"][-1]["content"]
    assert [part["type"] for part in parts] == ["image_url"] * 3 + ["text"] and parts[-1]["text"] == "What is this?"
    urls = [part["image_url"]["url"] for part in parts[:-1]]
    assert urls == [f"data:{kind};base64,{base64.b64encode(data).decode()}" for _, kind, data in (PNG, WEBP, PNG)]
    thumbs = chat.messages.nth(0).locator(".thumb img")
    assert [each.get_attribute("alt") for each in thumbs.all()] == ["a.png", "b.webp", "c.png"]
    assert page.evaluate("[...document.querySelectorAll('.message .thumb img')].every((each) => each.naturalWidth > 0)")
    chat.ask("And now?")
    assert eyes.sent(0)[-1] == "What is this?" and len(eyes.sent(0)) == 4 and eyes.sent() == ["And now?"]


def test_a_picture_without_words(chat: ChatPage, eyes: FakeEyes) -> None:
    """It is a question, and names the conversation. Enter at once waits until it has been read."""
    give(chat.field, "paste", [PNG])
    chat.field.press("Enter")
    chat.messages.nth(1).get_by_text("Seen 1.").wait_for()
    assert len(eyes.sent()) == 1
    chat.until_kept("Seen 1.")
    assert chat.names == ["a.png"]


@pytest.mark.parametrize(
    ("kind", "sides", "mode", "kept", "size"),
    [
        ("JPEG", (3000, 1501), "RGB", "JPEG", (2048, 1025)),
        ("PNG", (2051, 5), "RGB", "PNG", (2048, 5)),
        ("BMP", (61, 47), "RGB", "PNG", (61, 47)),
        ("GIF", (61, 47), "RGB", "PNG", (61, 47)),
        ("PNG", (1, 6000), "L", "PNG", (1, 2048)),
    ],
)
def test_written_anew(
    chat: ChatPage, eyes: FakeEyes, kind: str, sides: tuple[int, int], mode: str, kept: str, size: tuple[int, int]
) -> None:
    """Large ones are scaled down to 2048 pixels a side; kinds that servers may not know are PNGs."""
    image = squares(*sides) if mode == "RGB" else Image.new(mode, sides)
    give(chat.field, "paste", [("x", f"image/{kind.lower()}", encoded(image, kind))])
    until_attached(chat, "x")
    chat.ask("?")
    url = eyes.requests[-1]["messages"][-1]["content"][0]["image_url"]["url"]
    assert url.startswith(f"data:image/{kept.lower()};") and decoded(url).size == size
    if mode == "RGB":
        near(decoded(url), COLOURS, 6)


def near(image: Image.Image, colours: Any, most: int) -> None:
    """Assert that the middles of the four quarters have these colours."""
    for at, colour in enumerate(colours):
        x, y = (image.width * (1 + 2 * (at % 2))) // 4, (image.height * (1 + 2 * (at // 2))) // 4
        found = image.getpixel((x, y))
        assert max(abs(a - b) for a, b in zip(found, colour, strict=True)) <= most, (at, found, colour)


def test_turned_by_exif_and_transparent(chat: ChatPage, eyes: FakeEyes) -> None:
    """A large photo is turned as its EXIF data says, and transparent pixels are white."""
    exif = Image.Exif()
    exif[0x0112] = 6  # a quarter to the right
    photo = encoded(squares(2400, 1200), "JPEG", exif=exif, quality=95)
    clear = encoded(Image.new("RGBA", (2100, 30), (10, 20, 30, 0)))
    give(chat.field, "paste", [("photo.jpg", "image/jpeg", photo), ("clear.png", "image/png", clear)])
    until_attached(chat, "clear.png")
    chat.ask("?")
    turned, white, _ = eyes.sent()
    assert isinstance(turned, Image.Image) and isinstance(white, Image.Image)
    assert turned.size == (1024, 2048)
    near(turned, [COLOURS[2], COLOURS[0], COLOURS[3], COLOURS[1]], 8)
    assert white.getcolors() == [(2048 * 29, (255, 255, 255))]
    thumb = chat.messages.nth(0).locator(".thumb img").first
    assert int(thumb.get_attribute("height")) == 2048


FRAMES = [squares(9, 7), squares(9, 7).transpose(Image.Transpose.ROTATE_180)]
MOVES = "it moves: give one of its frames"
UNREADABLE = "this browser cannot read it as a picture"


def moving(kind: str) -> bytes:
    return encoded(FRAMES[0], kind, save_all=True, append_images=FRAMES[1:], duration=100)


@pytest.mark.parametrize(
    ("name", "kind", "content", "says"),
    [
        ("a.gif", "image/gif", moving("GIF"), MOVES),
        ("a.png", "image/png", moving("PNG"), MOVES),
        ("a.webp", "image/webp", moving("WEBP"), MOVES),
        ("cut.png", "image/png", PNG[2][:30], UNREADABLE),
        ("no.jpg", "image/jpeg", b"\xff\xd8\xff no JPEG", UNREADABLE),
        ("empty.png", "image/png", b"", UNREADABLE),
    ],
)
def test_refused_in_one_line(chat: ChatPage, eyes: FakeEyes, name: str, kind: str, content: bytes, says: str) -> None:
    """The other pictures are taken."""
    give(chat.field, "paste", [(name, kind, content), ("good.png", "image/png", PNG[2])])
    until_attached(chat, "good.png")
    alert = chat.page.locator("#composer").get_by_role("alert")
    assert alert.inner_text() == f"{name}: {says}." and attached(chat) == ["good.png"]


def test_a_model_without_eyes(chat: ChatPage) -> None:
    """No button, and one line for a paste. A drawing that is text is attached as text."""
    FakeEyes(chat, vision=False)
    page = chat.page
    assert page.get_by_role("button", name="Attach pictures").count() == 0
    give(chat.field, "paste", [PNG])
    alert = page.locator("#composer").get_by_role("alert").filter(has_text="a.png")
    alert.wait_for()
    assert alert.inner_text() == "a.png: this model takes no pictures."
    give(chat.field, "paste", [("d.svg", "image/svg+xml", b"<svg/>")])
    until_attached(chat, "d.svg")
    assert attached(chat) == []


def test_copied_from_a_page_or_a_table(chat: ChatPage, eyes: FakeEyes) -> None:
    """A picture of a page comes with markup, cells of a table with markup and text."""
    give(chat.field, "paste", [PNG], **{"text/html": "<img src='a.png'>"})
    until_attached(chat, "a.png")
    give(chat.field, "paste", [WEBP], **{"text/html": "<table></table>", "text/plain": "1\t2"})
    give(chat.field, "paste", [("c.png", *PNG[1:])])
    until_attached(chat, "c.png")
    assert attached(chat) == ["a.png", "c.png"]


def test_in_full(chat: ChatPage, eyes: FakeEyes) -> None:
    """A click or Enter shows a picture in a dialog; Escape closes it, and the focus is where it was."""
    page = chat.page
    give(chat.field, "paste", [PNG, WEBP])
    until_attached(chat, "b.webp")
    dialog = page.get_by_role("dialog", name="b.webp")
    page.locator("#composer .thumb").nth(1).click()
    dialog.wait_for()
    page.keyboard.press("Escape")
    assert dialog.is_hidden() and len(attached(chat)) == 2
    chat.ask("?")
    chat.messages.nth(0).locator(".thumb").nth(1).focus()
    page.keyboard.press("Enter")
    dialog.wait_for()
    shown = dialog.locator("img")
    assert shown.get_attribute("alt") == "b.webp"
    assert shown.evaluate("async (image) => (await image.decode(), [image.naturalWidth, image.naturalHeight])") == [
        33,
        70,
    ]
    page.keyboard.press("Escape")
    dialog.wait_for(state="hidden")
    assert chat.focused.locator("img").get_attribute("alt") == "b.webp"
    chat.open_tree()
    row = chat.tree.get_by_role("treeitem").first
    row.locator(".thumb").nth(1).click()
    dialog.wait_for()
    dialog.get_by_role("button", name="Close").click()
    assert dialog.is_hidden() and chat.tree.is_visible()


def test_by_keys_alone(chat: ChatPage, eyes: FakeEyes) -> None:
    """Removing moves the focus to the next button, at last to the field."""
    page = chat.page
    give(chat.field, "paste", [PNG, WEBP])
    until_attached(chat, "b.webp")
    page.get_by_role("button", name="Remove a.png").focus()
    page.keyboard.press("Enter")
    assert chat.focused.get_attribute("aria-label") == "Remove b.webp"
    page.keyboard.press("Enter")
    assert chat.focused.get_attribute("id") == "question" and attached(chat) == []
    page.keyboard.press("Shift+Tab")
    assert chat.focused.get_attribute("aria-label") == "Attach pictures"


def test_edits_and_branches(chat: ChatPage, eyes: FakeEyes) -> None:
    """An edit begins with the pictures of the question, can lose some and get others. The old branch keeps its own."""
    page = chat.page
    give(chat.field, "paste", [PNG, WEBP])
    until_attached(chat, "b.webp")
    chat.ask("What is this?")
    chat.do(1, "regenerate")
    chat.messages.nth(1).get_by_text("Seen 2.").wait_for()
    assert len(eyes.sent()) == 3
    chat.until_ended()
    chat.do(0, "edit")
    form = page.locator("form.editing")
    form.wait_for()
    assert attached(chat, "form.editing") == ["a.png", "b.webp"]
    form.get_by_role("button", name="Remove a.png").click()
    area = form.locator("textarea")
    give(area, "paste", [("c.png", *PNG[1:])])
    until_attached(chat, "c.png", "form.editing")
    with page.expect_file_chooser() as waiting:
        form.get_by_role("button", name="Add files or pictures").click()
    waiting.value.set_files([{"name": "d.png", "mimeType": "image/png", "buffer": PNG[2]}])
    until_attached(chat, "d.png", "form.editing")
    assert attached(chat) == [], "nothing goes to the next question"
    area.press("Enter")
    chat.messages.nth(1).get_by_text("Seen 3.").wait_for()
    chat.until_ended()
    assert (
        len(eyes.sent()) == 4
        and eyes.requests[-1]["messages"][0]["content"][0] == eyes.requests[0]["messages"][0]["content"][1]
    )
    names = [each.get_attribute("alt") for each in chat.messages.nth(0).locator(".thumb img").all()]
    assert names == ["b.webp", "c.png", "d.png"]
    chat.do(0, "before")
    assert chat.messages.nth(0).locator(".thumb").count() == 2


def kept(chat: ChatPage) -> int:
    """How many pictures the browser keeps."""
    n: int = chat.page.evaluate(
        """() => new Promise((done) => {
          const request = indexedDB.open("hybrid-pictures", 1);
          request.onsuccess = () => {
            const all = request.result.transaction("chats").objectStore("chats").count();
            all.onsuccess = () => { request.result.close(); done(all.result); };
          };
        })"""
    )
    return n


def test_kept_and_removed(chat: ChatPage, eyes: FakeEyes) -> None:
    """After a reload they are sent again. Removing messages removes their pictures, unless other branches have them."""
    page = chat.page
    chat.ask("Zero?")
    give(chat.field, "paste", [PNG])
    until_attached(chat, "a.png")
    chat.ask("One?")
    chat.until_kept("Seen 2.")
    page.reload()
    chat.messages.nth(2).locator(".thumb").wait_for()
    chat.ask("And?")
    assert isinstance(eyes.sent(2)[0], Image.Image)
    chat.do(2, "edit")
    page.locator("form.editing textarea").fill("Two?")
    page.keyboard.press("Enter")
    chat.messages.nth(3).get_by_text("Seen 4.").wait_for()
    chat.until_ended()
    assert len(eyes.sent()) == 2
    give(chat.field, "paste", [WEBP])
    until_attached(chat, "b.webp")
    chat.ask("Three?")
    assert kept(chat) == 2
    chat.do(2, "remove")
    chat.until_shown("One?")
    until(lambda: kept(chat) == 1)
    chat.do(2, "remove")
    until(lambda: kept(chat) == 0)
    give(chat.field, "paste", [PNG])
    until_attached(chat, "a.png")
    chat.ask("Four?")
    chat.until_kept("Four?")
    assert kept(chat) == 1
    page.locator("#history-list li").hover()
    page.get_by_role("button", name="Remove Zero?").click()
    page.get_by_role("button", name="Yes").click()
    until(lambda: kept(chat) == 0)


def test_a_draft_survives_a_reload(chat: ChatPage, eyes: FakeEyes) -> None:
    """Its words, pictures and files."""
    give(chat.field, "paste", [PNG, ("notes.txt", "", b"Notes")])
    until_attached(chat, "notes.txt")
    chat.field.fill("Half a quest")
    chat.page.reload()
    until_attached(chat, "notes.txt")
    assert attached(chat) == ["a.png"] and chat.field.input_value() == "Half a quest"
    chat.ask("Whole question")
    assert eyes.sent()[1] == "notes.txt:\n```\nNotes\n```\n\nWhole question" and isinstance(eyes.sent()[0], Image.Image)
    chat.page.reload()
    chat.until_shown("Whole question")
    assert chat.field.input_value() == "" and attached(chat) == []


def test_exported_and_imported(chat: ChatPage, eyes: FakeEyes, browsing: Browsing, server: Server) -> None:
    """The file has each picture once; whoever imports it has them under other ids."""
    give(chat.field, "paste", [PNG])
    until_attached(chat, "a.png")
    chat.ask("One?")
    chat.do(0, "edit")
    chat.page.locator("form.editing textarea").fill("Two?")
    chat.page.keyboard.press("Enter")
    chat.messages.nth(1).get_by_text("Seen 2.").wait_for()
    chat.until_ended()
    chat.until_kept("Seen 2.")
    file = chat.exported()
    url = f"data:image/png;base64,{base64.b64encode(PNG[2]).decode()}"
    assert list(file["pictures"].values()) == [url]
    other = opened(browsing, server)
    others = FakeEyes(other)
    assert other.bring(file) == "1 conversation imported."
    other.open("One?")
    other.messages.nth(0).locator(".thumb").wait_for()
    other.ask("And?")
    assert isinstance(others.sent(0)[0], Image.Image)
    assert other.bring(file) == "1 conversation imported."
    assert kept(other) == 2
    nodes = [node for each in other.exported()["chats"] for node in each["nodes"]]
    ids = {picture["id"] for node in nodes for picture in node["pictures"]}
    assert len(ids) == 2 and not ids & set(file["pictures"])


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("https://example.org/a.png", "expected a PNG, JPEG or WebP picture as a data URL, found"),
        ("data:image/svg+xml;base64,AAAA", "expected a PNG, JPEG or WebP picture as a data URL, found"),
        ('data:image/png;base64,AA"AA', "expected a PNG, JPEG or WebP picture as a data URL, found"),
        (7, "expected a PNG, JPEG or WebP picture as a data URL, found 7"),
    ],
)
def test_a_hostile_file(chat: ChatPage, url: Any, says: str) -> None:
    """Nothing is imported."""
    picture = {"id": "p", "name": "x", "width": 1, "height": 1, "small": url}
    node = {"id": "m", "parent": None, "role": "user", "content": "x", "reasoning": "", "toolCalls": [], "created": 1}
    one = {"id": "c", "title": "", "system": "", "created": 1, "changed": 1, "head": "m"}
    for nodes, pictures in (([node | {"pictures": [picture]}], {}), ([node], {"p": url})):
        file = {"format": "hybrid-chats", "version": 1, "chats": [one | {"nodes": nodes}], "pictures": pictures}
        assert says in bring_badly(chat, file)
    assert chat.names == []


def bring_badly(chat: ChatPage, file: Any) -> str:
    with chat.page.expect_file_chooser() as waiting:
        chat.page.get_by_role("button", name="Import").click()
    waiting.value.set_files({"name": "x.json", "mimeType": "", "buffer": json.dumps(file).encode()})
    note = chat.page.locator("#history-note").filter(has_text="Nothing was imported.")
    note.wait_for()
    return str(note.inner_text())


def test_no_room_left(chat: ChatPage, eyes: FakeEyes) -> None:
    """One line; the picture is sent all the same. After a reload its small copy is there, and an error names it."""
    page = chat.page
    page.evaluate("""() => {
      const put = IDBObjectStore.prototype.put;
      IDBObjectStore.prototype.put = function (record, ...more) {
        if (record.url) throw new DOMException("no room", "QuotaExceededError");
        return put.call(this, record, ...more);
      };
    }""")
    give(chat.field, "paste", [PNG])
    until_attached(chat, "a.png")
    alert = page.locator("#composer").get_by_role("alert")
    assert alert.inner_text() == "a.png: it can be sent, but is not kept: the browser has no room left."
    chat.ask("One?")
    assert isinstance(eyes.sent()[0], Image.Image)
    assert len(chat.exported()["pictures"]) == 1
    chat.until_kept("Seen 1.")
    page.reload()
    chat.messages.nth(0).locator(".thumb").click()
    page.get_by_role("dialog", name="a.png").get_by_text("this browser has only a small copy of it left").wait_for()
    page.keyboard.press("Escape")
    chat.ask("And?")
    trouble = chat.messages.last.get_by_role("alert")
    trouble.wait_for()
    assert trouble.locator("p").inner_text() == (
        "a.png is no longer in this browser. Edit its question: remove the picture, or add it again."
    )
    assert len(eyes.requests) == 1


KIND = "async (bytes) => (await import('/page/picture_kind.js')).kindOf(Uint8Array.from(bytes))"


def test_kinds(browsing: Browsing, server: Server) -> None:
    """Of whole files, and of every beginning of them."""
    page = browsing.blank(server)

    def kind(content: bytes) -> list[Any]:
        return list(page.evaluate(KIND, list(content)).values())

    for name, type_ in (("PNG", "image/png"), ("WEBP", "image/webp"), ("GIF", "")):
        assert kind(encoded(FRAMES[0], name)) == [type_, False]
        assert kind(moving(name)) == [type_, True]
    assert kind(encoded(FRAMES[0], "GIF", comment=b"x" * 600)) == ["", False], "its blocks are not frames"
    assert kind(encoded(FRAMES[0], "JPEG")) == ["image/jpeg", False] and kind(b"\0\0\0\x1cftypavis") == ["", True]
    assert kind(encoded(FRAMES[0], "BMP")) == kind(b"") == ["", False]
    for whole in map(moving, ("PNG", "WEBP", "GIF")):
        ends = [kind(whole[:n])[1] for n in range(len(whole) + 1)]
        assert ends == sorted(ends) and ends[-1] and not ends[20]


def test_dropped_on_a_question_that_is_edited(chat: ChatPage, eyes: FakeEyes) -> None:
    page = chat.page
    chat.ask("One?")
    chat.do(0, "edit")
    form = page.locator("form.editing")
    form.wait_for()
    give(form, "dragover", [PNG])
    assert "over" in form.get_attribute("class")
    give(form, "drop", [PNG])
    until_attached(chat, "a.png", "form.editing")
    assert "over" not in form.get_attribute("class") and attached(chat) == []
    form.locator("textarea").press("Escape")
    assert chat.messages.nth(0).locator(".thumb").count() == 0
    chat.do(0, "edit")
    give(form.locator("textarea"), "paste", [PNG])
    form.locator("textarea").press("Enter")  # at once
    chat.messages.nth(1).get_by_text("Seen 2.").wait_for()
    assert isinstance(eyes.sent()[0], Image.Image)


def test_in_two_tabs(browsing: Browsing, server: Server) -> None:
    """A conversation with pictures that another tab has begun goes on here."""
    context = browsing.context(server, viewport=WIDE)
    one = ChatPage(browsing.visit(context, server))
    FakeEyes(one)
    give(one.field, "paste", [PNG])
    until_attached(one, "a.png")
    one.ask("One?")
    one.until_kept("Seen 1.")
    other = ChatPage(browsing.visit(context, server))
    eyes = FakeEyes(other)
    other.messages.nth(0).locator(".thumb").wait_for()
    give(other.field, "paste", [WEBP])
    until_attached(other, "b.webp")
    other.ask("Two?")
    assert isinstance(eyes.sent(0)[0], Image.Image) and isinstance(eyes.sent()[0], Image.Image)
    one.open_tree()
    one.branch("Two?").locator("img").wait_for()


def test_old_pictures_of_no_conversation_go(chat: ChatPage, eyes: FakeEyes) -> None:
    """A week old; younger ones may be of another tab's draft."""
    now = int(time.time() * 1000)
    week = 7 * 86_400_000
    old, young = f"{now - week - 60_000}-a", f"{now - week + 600_000}-b"
    put = """async (ids) => (await (await import("/page/chat_store.js")).openStore("hybrid-pictures"))
      .put(ids.map((id) => ({ id, url: "data:," })))"""
    chat.page.evaluate(put, [old, young])
    assert kept(chat) == 2
    give(chat.field, "paste", [PNG])
    until_attached(chat, "a.png")
    until(lambda: kept(chat) == 2)
    keys = """async () => (await (await import("/page/chat_store.js")).openStore("hybrid-pictures")).keys()"""
    found = chat.page.evaluate(keys)
    assert young in found and old not in found


def test_an_export_that_would_be_too_large(chat: ChatPage, eyes: FakeEyes) -> None:
    """It can be imported: without probabilities, and without the pictures of the older conversation."""
    page = chat.page
    small = "data:image/png;base64,AAAA"
    picture = {"id": "p", "name": "x", "width": 1, "height": 1, "small": small}
    node = {"id": "m", "parent": None, "role": "user", "content": "x", "reasoning": "", "toolCalls": [], "created": 1}
    logprobs = [{"token": "a", "logprob": -1, "bytes": [97], "top_logprobs": [], "kind": "text"}]
    put = """async ([chats, urls]) => {
      const { openStore } = await import("/page/chat_store.js");
      await (await openStore()).put(chats);
      await (await openStore("hybrid-pictures")).put(urls.map(([id, n]) =>
        ({ id, url: `data:image/png;base64,${"A".repeat(n)}` })));
    }"""
    chats = [
        {"id": name, "title": name, "system": "", "created": at, "changed": at, "head": "m", "nodes": [
            node | {"created": at, "logprobs": logprobs, "pictures": [picture | {"id": name}]}
        ]}
        for at, name in ((1, "older"), (2, "newer"))
    ]  # fmt: skip
    page.evaluate(put, [chats, [["older", 26_000_000], ["newer", 26_000_000]]])
    page.reload()
    page.locator("#history-list .name", has_text="newer").wait_for()
    file = chat.exported()
    note = page.locator("#history-note").inner_text()
    assert note == (
        "2 conversations exported, without probabilities and the pictures of older conversations: with them the file "
        "would be too large to be imported."
    )
    assert list(file["pictures"]) == ["newer"] and len(json.dumps(file)) < 50e6
    assert [len(each["nodes"][0]["pictures"]) for each in file["chats"]] == [1, 1]
    assert "logprobs" not in file["chats"][0]["nodes"][0]


def test_looks(browsing: Browsing, server: Server) -> None:
    """Contrasts and names, in both schemes; every stop of Tab shows an outline."""
    for scheme in ("light", "dark"):
        chat = opened(browsing, server, color_scheme=scheme)
        eyes = FakeEyes(chat)
        eyes.usage["pictures"] = [{"tokens": 9, "ms": 7}]
        page = chat.page
        give(chat.field, "paste", [PNG])
        until_attached(chat, "a.png")
        chat.ask("One?")
        give(chat.field, "paste", [WEBP, ("bad.png", "image/png", b"")])
        until_attached(chat, "b.webp")
        page.get_by_text("bad.png: this browser").wait_for()
        assert page.evaluate(CONTRASTS) == [] and page.evaluate(NAMELESS) == []
        chat.messages.nth(0).locator(".thumb").click()
        page.get_by_role("dialog", name="a.png").wait_for()
        assert page.evaluate(CONTRASTS) == [] and page.evaluate(NAMELESS) == []
        page.keyboard.press("Escape")
        page.locator("#messages .message").first.focus()
        stops: list[tuple[str, bool]] = []
        while (not stops or stops[-1][0] != "Send") and len(stops) < 60:
            page.keyboard.press("Tab")
            stops.append(tuple(page.evaluate(STOPS)))
        assert [name for name, shown in stops if not shown] == []
        names = [name for name, _ in stops]
        order = [
            "Show a.png in full",
            "Show b.webp in full",
            "Remove b.webp",
            "Attach text files",
            "Attach pictures",
            "Your question",
            "Send",
        ]
        assert [name for name in names if name in order] == order


def test_what_they_took(chat: ChatPage, eyes: FakeEyes) -> None:
    """Tokens and milliseconds of its pictures stand under a question; those of the first look stay."""
    first = {"tokens": 1200, "ms": 900.4}
    eyes.usage["pictures"] = [first]
    give(chat.field, "paste", [PNG])
    until_attached(chat, "a.png")
    chat.ask("One?")
    line = chat.messages.nth(0).locator(".foot .figures")
    assert line.inner_text() == "The picture: 1\u202f200 tokens \u00b7 seen in 900 ms"
    eyes.usage["pictures"] = [first | {"ms": 0}, {"tokens": 30, "ms": 0}, {"tokens": 4, "ms": 5}]
    give(chat.field, "paste", [PNG, WEBP])
    until_attached(chat, "b.webp")
    chat.ask("Two?")
    assert line.inner_text() == "The picture: 1\u202f200 tokens \u00b7 seen in 900 ms"
    second = chat.messages.nth(2).locator(".foot .figures")
    assert second.inner_text() == "2 pictures: 34 tokens \u00b7 seen in 5 ms"
    chat.until_kept('"tokens": 30', "Seen 2.")
    chat.page.reload()
    second.filter(has_text="34 tokens").wait_for()
    del eyes.usage["pictures"]
    chat.ask("Three?")
    assert second.inner_text().startswith("2 pictures") and chat.messages.nth(4).locator(".figures").count() == 0


@pytest.fixture(scope="module")
def seeing(data_dir: Path) -> Iterator[Server]:
    """A model with random weights that sees. Its answers are short."""
    path = seeing_model(data_dir)
    with (
        LoadedModel.load(path, n_ctx=1024, n_seq_max=5, checkpoint_budget=64 << 20) as model,
        closing(Eyes.open(tower_of(path), model)) as eyes,
    ):
        defaults = ServerDefaults(n_predict=6)
        maker = Maker(model, model.chat_template, 6, defaults=defaults, sight=Sight(eyes))
        with closing(Server(model, maker=maker)) as server:
            yield server


def test_a_model_that_sees(browsing: Browsing, seeing: Server) -> None:
    """The picture is read once; the tree says what branches with it cost, as a chat completion does."""
    chat = opened(browsing, seeing)
    page = chat.page
    page.get_by_role("button", name="Attach pictures").wait_for()
    give(chat.field, "paste", [PNG])
    until_attached(chat, "a.png")
    chat.ask("What is this?")
    n = chat.figures()["read"]
    chat.do(1, "regenerate")
    chat.messages.nth(1).get_by_text("2 / 2").wait_for()
    chat.until_ended()
    assert n > 12 and chat.figures()["read"] <= 1 and seeing.served.maker.sight.eyes.n_encoded == 1  # type: ignore[union-attr]
    with page.expect_request("**/page/costs") as waiting:
        chat.open_tree()
    cost = chat.tree.locator(".cost:not(:empty)").first
    cost.wait_for()
    body = json.loads(waiting.value.post_data)
    assert list(body["pictures"].values()) == [f"data:image/png;base64,{base64.b64encode(PNG[2]).decode()}"]
    assert waiting.value.post_data.count("base64,") == 1, "two branches have it, and it is sent once"
    for message in body["conversations"][0]["messages"][0]["content"]:
        if message["type"] == "image_url":
            message["image_url"]["url"] = next(iter(body["pictures"].values()))
    (inline,) = post(seeing, "/page/costs", conversations=body["conversations"][:1])["costs"]
    told = post(seeing, "/page/costs", **json.loads(waiting.value.post_data))["costs"]
    assert told[0] == inline and inline["tokens"] > n and inline["reused"] >= n - 1
    assert "to read" in cost.get_attribute("title")


def test_on_a_phone(browsing: Browsing, server: Server) -> None:
    """The camera has a button of its own; nothing is wider than the window."""
    chat = opened(browsing, server, viewport=PHONE, has_touch=True, is_mobile=True)
    eyes = FakeEyes(chat)
    page = chat.page
    with page.expect_file_chooser() as waiting:
        page.get_by_role("button", name="Take a picture").tap()
    assert page.locator("#composer input[type=file]").get_attribute("capture") == ""
    wide = encoded(squares(1600, 90))
    waiting.value.set_files([{"name": f"{i}.png", "mimeType": "image/png", "buffer": wide} for i in range(5)])
    until_attached(chat, "4.png")
    page.get_by_role("button", name="Attach pictures").click()
    assert page.locator("#composer input[type=file]").get_attribute("capture") is None
    page.get_by_role("button", name="Remove 4.png").tap()
    chat.field.fill("?")
    page.get_by_role("button", name="Send").tap()
    chat.messages.nth(1).get_by_text("Seen 1.").wait_for()
    assert len(eyes.sent()) == 5
    assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    assert page.evaluate("document.getElementById('scroller').scrollWidth") <= PHONE["width"]
