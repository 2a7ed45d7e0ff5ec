"""The files of the page: which are sent to whom, under which policy, and how a browser handles them."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from browser import Browsing, browsing, chromium  # noqa: F401  fixtures
from http_server import Server, serving

from hybrid.cli.serve.page.files import STATIC, TYPES, page_files
from hybrid.cli.serve.page.routes import POLICY
from hybrid.infer import LoadedModel

pytestmark = pytest.mark.exhaustive

KEY = {"Authorization": "Bearer secret"}
MOST = 276_500  # bytes of all files of the chat together, uncompressed: 81 000 of them are vendored
MOST_LOADED = 218_500  # bytes of the files loaded before a panel, settings, help or probabilities are opened
MOST_SENT = 115_000  # bytes of all pages after gzip

# as in npm: marked 18.2.1 lib/marked.esm.js, dompurify 3.4.18 dist/purify.min.js
VENDORED = {
    "marked.esm.js": "5371fea86fd0656b4fc7bea7c94c663109d82789b69433eeee78d42895aa44de",
    "purify.min.js": "8053ee2a6a09f9d50f7fcd6fb7f07072f52c7f3fa9aa12147cab4feaf65ee970",
}


@pytest.fixture(scope="module")
def model(files: dict[str, Path]) -> Iterator[LoadedModel]:
    with LoadedModel.load(files["q8_0"], n_ctx=256, n_seq_max=4) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def server(model: LoadedModel) -> Iterator[Server]:
    with serving(model) as server:
        yield server


def test_pages_are_small() -> None:
    """The sum of the chat's files, and of everything sent, compressed."""
    sizes = {path.relative_to(STATIC).as_posix(): path.stat().st_size for path in STATIC.rglob("*") if path.is_file()}
    assert not [name for name in sizes if Path(name).suffix not in TYPES], "of a kind that is not sent"
    chat = {name: size for name, size in sizes.items() if not name.startswith("state")}
    assert sum(chat.values()) < MOST, chat
    assert sum(len(file.packed) for file in page_files().values()) < MOST_SENT


def test_vendored_files_are_what_npm_has() -> None:
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (STATIC / "vendor").iterdir()}
    assert found == VENDORED
    licences = STATIC.parent / "licences"
    assert "MIT" in (licences / "marked.LICENSE.txt").read_text()
    assert "Apache License" in (licences / "purify.LICENSE.txt").read_text()


@pytest.mark.page
def test_a_conversation_loads_little(browsing: Browsing, server: Server) -> None:
    loaded: set[str] = set()
    context = browsing.context(server)
    context.on("request", lambda request: loaded.add(urlsplit(request.url).path))
    page = browsing.visit(context, server)
    page.get_by_label("Your question").fill("Hello")
    page.keyboard.press("Enter")
    page.locator(".message.assistant").wait_for()
    page.get_by_role("button", name="Send", exact=True).wait_for()
    sizes = {path: len(file.content) for path, file in page_files().items() if path in loaded}
    assert "/page/vendor/marked.esm.js" in sizes and "/page/highlight.js" in sizes
    assert sum(sizes.values()) < MOST_LOADED, sizes


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize(("path", "name"), [("/", "index.html"), ("/state", "state.html"), ("/page/app.js", "app.js")])
def test_a_file_and_its_headers(server: Server, method: str, path: str, name: str) -> None:
    response = server.http.request(method, path, headers={"Accept-Encoding": "identity"})
    content = (STATIC / name).read_bytes()
    assert response.status_code == 200
    assert response.content == (content if method == "GET" else b"")
    assert response.headers["content-length"] == str(len(content))
    assert response.headers["content-type"] == TYPES[Path(name).suffix]
    assert response.headers["content-security-policy"] == POLICY
    assert response.headers["x-content-type-options"] == "nosniff"
    for directive in ("default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "form-action 'none'"):
        assert directive in POLICY
    assert "unsafe" not in POLICY and "http" not in POLICY


def test_what_a_browser_has_is_not_sent_again(server: Server) -> None:
    first = server.http.get("/page/app.js")
    tag = first.headers["etag"]
    for given in (tag, f'"other", {tag}'):
        again = server.http.get("/page/app.js", headers={"If-None-Match": given})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    assert server.http.get("/page/app.js", headers={"If-None-Match": '"other"'}).content == first.content


@pytest.mark.parametrize(
    ("accepted", "packed"),
    [("gzip", True), ("br, GZIP;q=0.5", True), ("gzip;q=0", False), ("gzip; q=0.0", False), ("br", False), ("", False)],
)
def test_files_are_packed_for_who_takes_that(server: Server, accepted: str, packed: bool) -> None:
    response = server.http.get("/page/markdown.js", headers={"Accept-Encoding": accepted})
    content = (STATIC / "markdown.js").read_bytes()
    assert response.content == content
    assert ("gzip" in response.headers.get("content-encoding", "")) == packed
    assert (int(response.headers["content-length"]) < len(content) // 2) == packed
    assert response.headers["vary"] == "Accept-Encoding"


@pytest.mark.parametrize(
    "path",
    ["/page/", "/page/none.js", "/page/../routes.py", "/page/%2e%2e/routes.py", "/page/..%2froutes.py", "/page//app.js",
     "/page/%00", "/index.html"],
)  # fmt: skip
def test_nothing_else_is_sent(server: Server, path: str) -> None:
    response = server.http.get(path)
    assert response.status_code == 404, path
    assert "error" in response.json() and "class" not in response.text


def test_only_reading_is_open_without_a_key(model: LoadedModel) -> None:
    with serving(model, keys=("secret",)) as server:
        for path in ("/", "/state", "/page/app.js"):
            assert server.http.get(path).status_code == server.http.head(path).status_code == 200
            assert server.http.post(path).status_code == 401
        assert server.http.get("/page/none.js").status_code == server.http.get("/page/costs").status_code == 401
        assert server.http.get("/pages").status_code == server.http.get("/v1/models").status_code == 401
        assert server.http.get("/v1/models", headers=KEY).status_code == 200


def test_no_page(model: LoadedModel) -> None:
    with serving(model, page=False) as server:
        for path in ("/state", "/page/app.js"):
            assert server.http.get(path).status_code == 404
        assert server.http.get("/").text == "Ollama is running"
        assert server.http.get("/v1/models").status_code == 200
    with serving(model, page=False, keys=("secret",)) as server:
        assert server.http.get("/").status_code == 401


def test_a_name_that_others_have_chosen_is_no_way_in(server: Server) -> None:
    """DNS rebinding: a web page whose host name resolves to this server."""
    for path in ("/", "/state", "/page/app.js"):
        assert server.http.get(path, headers={"Host": "evil.example"}).status_code == 403
        assert server.http.get(path, headers={"Origin": "http://evil.example"}).status_code == 403


@pytest.mark.page
def test_hello(browsing: Browsing, server: Server) -> None:
    page = browsing.open(server)
    page.get_by_role("heading", name="tiny").wait_for()


@pytest.mark.page
def test_the_browser_is_watched(browsing: Browsing, server: Server) -> None:
    page = browsing.open(server)
    page.evaluate("fetch('http://fetched.example/').catch(() => {})")
    page.evaluate("window.open('http://opened.example/')")
    page.evaluate("document.body.append(Object.assign(document.createElement('img'), {src: 'http://127.0.0.1:9/x'}))")
    page.evaluate("() => { try { document.body.innerHTML = 'x' } catch {} }")
    page.evaluate("console.error('of the page')")
    page.evaluate("() => { setTimeout(() => { throw Error('thrown') }) }")
    page.evaluate("() => { setTimeout(() => alert('asked')) }")
    page.wait_for_timeout(300)
    seen = "\n".join(browsing.problems)
    for part in (
        "fetched.example",
        "to http://opened.example",
        "127.0.0.1:9",
        "TrustedHTML",
        "of the page",
        "thrown",
        "asked",
    ):
        assert part in seen, (part, seen)
    with pytest.raises(AssertionError):
        browsing.check()
    browsing.problems.clear()
    page.evaluate("console.error('status of 503')")
    with pytest.raises(AssertionError):
        browsing.check()
    browsing.expects("503")
