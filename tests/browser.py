"""Chromium, headless, before a server of the tests: whatever it should not do fails the test that opened it.

    from browser import Browsing, browsing, chromium   # fixtures, for a module or a conftest

    def test_it(browsing: Browsing, server: Server) -> None:
        page = browsing.open(server)                 # a page of playwright, at GET /
        page = browsing.open(server, "state", viewport={"width": 360, "height": 740}, color_scheme="dark")
        browsing.expects("503")                      # an error in the console that this test provokes

A request to another host, an error or warning in the console, a script's exception or a violation of the content
policy fails the test when it ends.
"""

import shutil
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from http_server import Server

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",  # containers of CI cannot make one
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",  # what goes elsewhere goes nowhere
)
MILLISECONDS = 60_000  # a machine that does other work as well


class Browsing:
    """The pages of one test, each with a storage of its own.

    problems  what they did that they should not have done
    """

    def __init__(self, chromium: Any) -> None:
        self.chromium = chromium
        self.problems: list[str] = []
        self._expected: list[str] = []
        self._contexts: list[Any] = []

    def expects(self, *parts: str) -> None:
        """Errors of the console that have one of these in them are no problem."""
        self._expected += parts

    def context(self, server: Server, **options: Any) -> Any:
        """A browser's profile: pages of it share their storage. options: playwright's, of `new_context`."""
        context = self.chromium.new_context(**options)
        context.set_default_timeout(MILLISECONDS)
        self._contexts.append(context)
        own = urlsplit(server.url).netloc

        def check(request: Any) -> None:
            """data: and blob: come from the page itself."""
            url = urlsplit(request.url)
            if url.scheme not in ("data", "blob") and url.netloc != own:
                self.problems.append(f"a request to {request.url[:200]}")

        # no route for all: that would send each file of each page through this process, and past the browser's cache
        context.on("request", check)
        context.on("page", self._watch)
        return context

    def open(self, server: Server, path: str = "", **options: Any) -> Any:
        """A page in a profile of its own."""
        return self.visit(self.context(server, **options), server, path)

    def visit(self, context: Any, server: Server, path: str = "") -> Any:
        """A page in a profile that is there."""
        page = context.new_page()
        page.goto(f"{server.url}/{path}")
        return page

    def blank(self, server: Server, **options: Any) -> Any:
        """A page with the content policy of all others and nothing that runs: for modules that stand by themselves."""
        context = self.context(server, **options)
        context.route("**/page/state.js", lambda route: route.fulfill(content_type="text/javascript", body=""))
        return self.visit(context, server, "state")

    def check(self) -> None:
        """Nothing has happened that should not."""
        left = [line for line in self.problems if not any(part in line for part in self._expected)]
        assert not left, "\n".join(left)

    def close(self) -> None:
        for context in self._contexts:
            context.close()

    def _watch(self, page: Any) -> None:
        def console(message: Any) -> None:
            # violations of the policy are errors of the console, too
            if message.type in ("error", "warning"):
                self.problems.append(f"console {message.type}: {message.text} ({message.location.get('url', '')})")

        page.on("console", console)
        page.on("pageerror", lambda error: self.problems.append(f"a script failed: {error}"))
        page.on("dialog", self._dialog)
        page.on("crash", lambda _: self.problems.append("the page has crashed"))

    def _dialog(self, dialog: Any) -> None:
        self.problems.append(f"a dialog: {dialog.message[:200]}")
        dialog.dismiss()


def executable() -> str | None:
    """Chromium as distributions call it."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


# of a module, not of the session: while it runs, no asyncio.run() works in this thread, which other tests call
@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """A browser, started once for the tests of a module."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = executable()
    if path is None:
        pytest.skip(f"there is no Chromium here (looked for {', '.join(NAMES)})")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=list(FLAGS), timeout=MILLISECONDS)
        yield browser
        browser.close()


@pytest.fixture
def browsing(chromium: Any) -> Iterator[Browsing]:
    """What a test opens pages with; what they do wrong fails it."""
    browsing = Browsing(chromium)
    try:
        yield browsing
        browsing.check()
    finally:
        browsing.close()
