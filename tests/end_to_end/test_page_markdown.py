"""A model's text in a browser: how it looks, that nothing of it runs or loads, and that nothing freezes."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import Browsing, chromium  # noqa: F401  fixtures
from hostile_texts import HOSTILE, LARGE
from http_server import Server, serving

from hybrid.infer import LoadedModel

pytestmark = [pytest.mark.exhaustive, pytest.mark.page]

MOST_SECONDS = 8.0  # for any text, on a machine that does other work; most take less than a tenth

DRAW = """async ([text, options]) => {
  const { renderMarkdown } = await import("/page/markdown.js");
  const begin = performance.now();
  const box = document.createElement("div");
  box.id = "box";
  box.className = "markdown";
  box.append(renderMarkdown(text, options));
  document.body.replaceChildren(box);
  box.getBoundingClientRect();
  return (performance.now() - begin) / 1000;
}"""


@pytest.fixture(scope="module")
def server(files: dict[str, Path]) -> Iterator[Server]:
    with LoadedModel.load(files["q8_0"], n_ctx=256, n_seq_max=4) as model, serving(model) as server:
        yield server


class Page:
    """A page on which texts are drawn."""

    def __init__(self, page: Any) -> None:
        self.page = page

    def draw(self, text: str, **options: Any) -> Any:
        """Draw the text within a time limit; return the element with it."""
        seconds = self.page.evaluate(DRAW, [text, options])
        assert seconds < MOST_SECONDS, f"{seconds:.1f} s"
        return self.page.locator("#box")

    def html(self, text: str, **options: Any) -> str:
        found: str = self.draw(text, **options).inner_html()
        return found

    def count(self, selector: str) -> int:
        n: int = self.page.locator(f"#box {selector}").count()
        return n


@pytest.fixture(scope="module")
def shared(chromium: Any, server: Server) -> Iterator[tuple[Browsing, Any]]:
    """One page for all tests: opening a page takes longer than most of them."""
    browsing = Browsing(chromium)
    yield browsing, browsing.blank(server)
    browsing.close()


@pytest.fixture
def page(shared: tuple[Browsing, Any]) -> Iterator[Page]:
    browsing, found = shared
    found.reload()
    found.set_viewport_size({"width": 1280, "height": 720})
    found.evaluate("""async () => {
      window.ran = 0;
      const style = document.createElement("link");
      style.rel = "stylesheet";
      style.href = "/page/message.css";
      const loaded = new Promise((done) => style.addEventListener("load", done));
      document.head.append(style);
      await loaded;
    }""")
    yield Page(found)
    try:
        browsing.check()
    finally:
        browsing.problems.clear()


# --- supported Markdown ---
def test_markdown(page: Page) -> None:
    box = page.draw(
        "# One\n\nSome *soft* and **loud** words, `code`, ~~gone~~.\nA second line\n\n- a\n- b\n  1. c\n\n"
        "> said\n\n---\n\n- [x] done\n- [ ] open\n\n| a | b |\n|:-:|--:|\n| 1 | 2 |\n\nH<sub>2</sub>O<br>"
        "x &amp; y < z && w"
    )
    assert box.locator("h1").inner_text() == "One"
    for tag in ("em", "strong", "code", "del", "ul li ol li", "blockquote p", "hr", "sub", "br"):
        assert page.count(tag) >= 1, tag
    assert box.locator("p").first.inner_text().splitlines()[1] == "A second line"
    assert box.locator("li", has_text="done").inner_text() == "☑ done"
    assert [box.locator(one).get_attribute("align") for one in ("th >> nth=0", "td >> nth=1")] == ["center", "right"]
    assert box.locator("p").last.inner_text() == "H2O\nx & y < z && w"
    assert page.count("[dir=auto]") >= 10


def test_links_lead_away_and_say_where(page: Page) -> None:
    box = page.draw("[here](https://example.org/a?b=1&c=2 'said') https://plain.example/x <m@example.org>")
    link = box.get_by_role("link", name="here")
    assert link.get_attribute("href") == "https://example.org/a?b=1&c=2"
    assert link.get_attribute("title") == "said: https://example.org/a?b=1&c=2"
    for each in box.locator("a").all():
        assert each.get_attribute("target") == "_blank"
        assert set((each.get_attribute("rel") or "").split()) == {"noopener", "noreferrer", "nofollow"}
    assert page.count("a") == 3 and page.count(".link-host") == 0
    assert page.draw("[www.bank.example](https://evil.example/)").inner_text() == "www.bank.example (evil.example)"
    assert page.draw("[https://bank.example/](https://www.bank.example/x)").inner_text() == "https://bank.example/"


def test_formulas_are_not_emphasis(page: Page) -> None:
    box = page.draw("Let \\(a_1 * b_2 * c\\) and $$x_i \\\\ y_i$$ be, at $5 or $6.\n\n\\[\n\\sum_i x_i\n\\]")
    assert box.locator("code.math").all_inner_texts() == ["a_1 * b_2 * c", "x_i \\\\ y_i", "\\sum_i x_i"]
    assert page.count("em") == 0 and "$5 or $6" in box.inner_text()


CODE = "def greet(name):  # hello\n    return f\"<b>{name}</b>\" + 'x' * 12\n"


def test_code_has_language_colours_and_copy(page: Page) -> None:
    box = page.draw(f"Look:\n\n```python\n{CODE}```\n")
    assert box.locator(".code-language").inner_text() == "python"
    assert box.locator("pre code").text_content() == CODE.rstrip("\n")
    kinds = {"comment": "# hello", "word": "def", "call": "greet", "number": "12", "text": "'x'"}
    for kind, text in kinds.items():
        assert text in box.locator(f".hl-{kind}").all_text_contents()
    page.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    copy = box.get_by_role("button", name="Copy this code (python)")
    copy.focus()
    page.page.keyboard.press("Enter")
    box.get_by_text("Copied").wait_for()
    assert page.page.evaluate("navigator.clipboard.readText()") == CODE.rstrip("\n")
    box.get_by_text("Copy", exact=True).wait_for()


def test_code_that_grows_has_no_colours_yet(page: Page) -> None:
    text = f"```python\n{CODE}```\n\nthen\n\n```python\n{CODE}"
    assert page.count(".code-block") == 0
    page.draw(text, complete=False)
    assert page.count(".code-block") == 2
    blocks = page.page.locator("#box .code-block")
    assert blocks.nth(0).locator(".hl-word").count() > 0 and blocks.nth(1).locator(".hl-word").count() == 0
    page.draw(text, complete=True)
    assert page.page.locator("#box .code-block").nth(1).locator(".hl-word").count() > 0


LANGUAGES: dict[str, tuple[str, dict[str, str]]] = {
    "ts": ("const a: string = `x${1}`; // y", {"word": "const", "text": "`x${1}`", "comment": "// y"}),
    "c++": ("#include <a>\nint main() { return 0x1F; }", {"mark": "#include", "word": "int", "number": "0x1F"}),
    "rust": ("fn f(x: &'static str) -> char { 'b' }", {"word": "fn", "text": "'b'", "call": "f"}),
    "bash": ('for f in *; do echo "$f" # all\ndone', {"word": "for", "text": '"$f"', "comment": "# all"}),
    "json": ('{"a": [1.5e3, true]}', {"number": "1.5e3", "word": "true", "text": '"a"'}),
    "yaml": ("a-b: 1 # c\nurl: x#y", {"key": "a-b", "comment": "# c"}),
    "c": ("/* a\nb */ x = 1;\n/* open\nto the end", {"comment": "/* a\nb */", "number": "1"}),
    "py": ('s = """a\nb""" + 1', {"text": '"""a\nb"""', "number": "1"}),
    "sql": ("SELECT a FROM b -- c", {"word": "SELECT", "comment": "-- c"}),
    "html": ('<a href="x"><!-- c --></a>', {"mark": "<a", "key": "href", "text": '"x"', "comment": "<!-- c -->"}),
    "diff": ("--- a\n+++ b\n-old\n+new\n", {"removed": "-old\n", "added": "+new\n"}),
    "unheard-of": ("while (x) { y(2) } // z", {"word": "while", "call": "y", "comment": "// z"}),
}


def test_languages(page: Page) -> None:
    for language, (code, kinds) in LANGUAGES.items():
        box = page.draw(f"```{language}\n{code}\n```")
        assert box.locator("pre code").text_content().strip() == code.strip()
        for kind, text in kinds.items():
            assert text in box.locator(f".hl-{kind}").all_text_contents(), (language, kind)
        assert page.draw(f"```\n{code}\n```").locator("[class^=hl-]").count() == 0, "of no language"


# --- forbidden effects ---
ALLOWED_TAGS = (
    "a b blockquote br button code del details div em figcaption figure h1 h2 h3 h4 h5 h6 hr i img kbd li mark ol p "
    "pre s small span strong sub summary sup table tbody td th thead tr u ul wbr"
)
ALLOWED_NAMES = (
    "align alt aria-label class data-code dir href rel role src start tabindex target title type"  # no id, no style
)
OURS = {"code-block", "code-head", "code-language", "code-copy", "table-frame", "link-host", "control", "math"}
SEEN = """() => {
  const all = [...document.querySelectorAll("#box *")];
  return [
    all.map((one) => one.localName), all.flatMap((one) => one.getAttributeNames()),
    all.flatMap((one) => [...one.classList]),
    [...document.querySelectorAll("#box a[href]")].map((one) => one.getAttribute("href")), window.ran,
  ];
}"""


@pytest.mark.parametrize("complete", [True, False])
def test_nothing_runs_and_nothing_is_loaded(page: Page, complete: bool) -> None:
    """The fixture checks that no other host was asked and that the policy blocked nothing."""
    page.draw("all modules are loaded")
    asked: list[str] = []
    page.page.on("request", lambda request: asked.append(request.url))
    for text in HOSTILE:
        page.draw(text, complete=complete)
        page.page.wait_for_timeout(20)
        tags, names, classes, links, ran = page.page.evaluate(SEEN)
        assert set(tags) <= set(ALLOWED_TAGS.split()), text
        assert set(names) <= set(ALLOWED_NAMES.split()), text
        assert all(name in OURS or name.startswith("hl-") for name in classes), text
        assert all(link.startswith(("http://", "https://", "mailto:")) for link in links), text
        assert page.count("img:not([src^='data:image/'])") == 0, text
        assert ran == 0, text
    assert asked == []


def test_a_button_is_ours_and_only_in_code(page: Page) -> None:
    assert page.draw("<button>Sign in</button>").inner_text().count("<button>") == 1
    assert page.count("button") == 0
    assert page.draw("<div><button>Sign in</button></div>").locator("pre").count() == 1
    assert page.count("button.code-copy") == page.count("button") == 1


def test_tags_that_are_not_drawn_are_seen(page: Page) -> None:
    """Unsupported tags appear as text, so that the reader sees what the model wrote."""
    for text in (
        "<div class=x>a</div>",
        "one <span>a</span> two",
        "<think>hm</think>",
        "<!-- hidden -->",
        "a <script>b",
    ):
        assert text in page.draw(text).inner_text(), text


def test_pictures(page: Page) -> None:
    dot = "data:image/gif;base64,R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7"
    assert page.draw(f"![a dot]({dot})").locator("img").get_attribute("alt") == "a dot"
    box = page.draw("![a cat](https://elsewhere.example/cat.png)")
    assert box.locator("a").inner_text() == "image: a cat" and page.count("img") == 0


def test_directions_do_not_leave_their_place(page: Page) -> None:
    """Trojan Source: control characters must not make a program look like another one."""
    code = "if admin != \u202e '\u2066// only admins\u2069 \u2066':\n    pass"
    box = page.draw(f"```python\n{code}\n```\n\nand \u202ereversed\u202c text, \u05d0\u05d1\u05d2")
    assert box.locator("pre code").text_content() == code
    assert box.locator(".control").count() == 6
    assert box.locator("pre .control").first.get_attribute("data-code") == "U+202E"
    shown = page.page.evaluate("getComputedStyle(document.querySelector('#box .control'), '::before').content")
    assert "U+202E" in shown
    # the word keeps its direction: its first letter is left of its last one
    assert page.page.evaluate("""() => {
      const walker = document.createTreeWalker(document.querySelector("#box > p"), NodeFilter.SHOW_TEXT);
      while (walker.nextNode()) {
        const at = walker.currentNode.data.indexOf("reversed");
        if (at < 0) continue;
        const left = (i) => { const r = document.createRange(); r.setStart(walker.currentNode, at + i);
          r.setEnd(walker.currentNode, at + i + 1); return r.getBoundingClientRect().left; };
        return left(0) < left(7);
      }
    }""")


# --- time limits ---
@pytest.mark.slow
def test_nothing_freezes(page: Page) -> None:
    """While an answer grows, and when it is complete. All on one page, which must also free their memory."""
    for name, text in LARGE.items():
        for complete in (True, False) if "code" in name else (True,):
            seconds = page.page.evaluate(DRAW, [text, {"complete": complete}])
            assert seconds < MOST_SECONDS, f"{name}: {seconds:.1f} s"
    assert page.draw("still **there**").inner_text() == "still there"


@pytest.mark.slow
def test_what_is_too_much_is_still_shown(page: Page) -> None:
    """All of it appears as plain text."""
    for name in ("a line of 1 MB", "quotes", "list marks", "a long table", "emphasis", "nested emphasis", "bold"):
        text = LARGE[name]
        shown = page.draw(text).text_content()
        letters = [character for character in "xab1" if character in text]
        for letter in letters:
            assert shown.count(letter) >= text.count(letter) * 0.99, (name, letter)
    wide = page.draw(LARGE["a wide table"])
    assert wide.locator("table").count() == 0 and wide.locator("pre").count() == 1
    sizes = page.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert sizes[0] <= sizes[1], "it scrolls in itself"


def test_wide_things_scroll_in_themselves(page: Page) -> None:
    page.page.set_viewport_size({"width": 360, "height": 740})
    table = "|" + "a long heading|" * 12 + "\n|" + "-|" * 12 + "\n" + ("|" + "b|" * 12 + "\n") * 3
    page.draw(f"{table}\n\n```\n{'x' * 500}\n```\n\n{'y' * 500}\n\nhttps://example.org/{'z' * 300}\n\n$${'w' * 300}$$")
    page.page.evaluate("document.querySelector('#box').style.overflowWrap = 'anywhere'")  # as on the pages
    wide, window = page.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert wide <= window
    for selector in (".table-frame", "pre"):
        inner, outer = page.page.locator(f"#box {selector}").first.evaluate("(e) => [e.scrollWidth, e.clientWidth]")
        assert inner > outer
        assert page.page.locator(f"#box {selector}").first.get_attribute("tabindex") == "0"


def test_json_of_a_page_is_text(page: Page) -> None:
    """Names of prototypes and options in a text stay text."""
    for text in (
        "__proto__",
        "constructor",
        "```constructor\nx\n```",
        "```__proto__\nx\n```",
        json.dumps({"a": "</script>"}),
    ):
        assert page.draw(text).inner_text().strip()


CONTRASTS = """async () => {
  const { style } = await import("/page/dom.js");
  await Promise.all([style("theme"), style("probabilities")]);
  const pen = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const brightness = (colour) => {
    pen.fillStyle = colour;
    pen.fillRect(0, 0, 1, 1);
    const linear = [...pen.getImageData(0, 0, 1, 1).data].slice(0, 3).map((byte) => {
      const part = byte / 255;
      return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  };
  const shown = (className) => {
    const one = document.createElement("span");
    one.className = className;
    document.body.append(one);
    const { color, backgroundColor } = getComputedStyle(one);
    one.remove();
    return [color, backgroundColor];
  };
  const contrast = (a, b) => {
    const [dark, light] = [brightness(a), brightness(b)].sort((x, y) => x - y);
    return (light + 0.05) / (dark + 0.05);
  };
  const [, ground] = shown("code-block");
  const kinds = "comment text number word call key mark added removed".split(" ");
  const found = kinds.map((kind) => [kind, contrast(shown(`hl-${kind}`)[0], ground)]);
  for (const level of [1, 2, 3, 4]) found.push([`surprise ${level}`, contrast(...shown(`token surprise-${level}`))]);
  return found;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_colours_can_be_read(page: Page, scheme: str) -> None:
    """WCAG's contrast of text, and of code and tokens on their backgrounds."""
    page.page.emulate_media(color_scheme=scheme)
    weak = {name: round(contrast, 2) for name, contrast in page.page.evaluate(CONTRASTS) if contrast < 4.5}
    assert not weak
