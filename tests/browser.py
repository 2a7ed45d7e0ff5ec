"""Headless Chromium as a client of a test's server. Whatever a page should not do fails the test that opened it.

    from browser import Browsing, browsing, chromium   # fixtures, for a module or a conftest

    def test_it(browsing: Browsing, server: Server) -> None:
        page = browsing.open(server)                 # a page of playwright, at GET /
        page = browsing.open(server, "state", viewport={"width": 360, "height": 740}, color_scheme="dark")
        browsing.expects("503")                      # an error in the console that this test provokes

A request to another host, an error or warning in the console, an exception in a script or a violation of the content
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
    "--no-sandbox",  # CI containers have no sandbox
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",  # other hosts are not resolved
)
MILLISECONDS = 60_000  # generous, for a machine that does other work as well


class Browsing:
    """The pages of one test. Each has its own storage.

    problems  unexpected requests, console messages and exceptions
    """

    def __init__(self, chromium: Any) -> None:
        self.chromium = chromium
        self.problems: list[str] = []
        self._expected: list[str] = []
        self._contexts: list[Any] = []

    def expects(self, *parts: str) -> None:
        """Console errors that contain one of `parts` are not problems."""
        self._expected += parts

    def context(self, server: Server, **options: Any) -> Any:
        """A browser profile; its pages share their storage. options: of playwright's `new_context`."""
        context = self.chromium.new_context(**options)
        context.set_default_timeout(MILLISECONDS)
        self._contexts.append(context)
        own = urlsplit(server.url).netloc

        def check(request: Any) -> None:
            """Note requests to other hosts. data: and blob: URLs are of the page itself."""
            url = urlsplit(request.url)
            if url.scheme not in ("data", "blob") and url.netloc != own:
                self.problems.append(f"a request to {request.url[:200]}")

        # not context.route() for everything: it would send each file through this process and bypass the browser's
        # cache
        context.on("request", check)
        context.on("page", self._watch)
        return context

    def open(self, server: Server, path: str = "", **options: Any) -> Any:
        """Open a page in a new profile."""
        return self.visit(self.context(server, **options), server, path)

    def visit(self, context: Any, server: Server, path: str = "") -> Any:
        """Open a page in an existing profile."""
        page = context.new_page()
        page.goto(f"{server.url}/{path}")
        return page

    def blank(self, server: Server, **options: Any) -> Any:
        """A page with the usual content policy that runs no script: for testing modules alone."""
        context = self.context(server, **options)
        context.route("**/page/state.js", lambda route: route.fulfill(content_type="text/javascript", body=""))
        return self.visit(context, server, "state")

    def check(self) -> None:
        """Assert that there were no unexpected problems."""
        left = [line for line in self.problems if not any(part in line for part in self._expected)]
        assert not left, "\n".join(left)

    def close(self) -> None:
        for context in self._contexts:
            context.close()

    def _watch(self, page: Any) -> None:
        def console(message: Any) -> None:
            # violations of the policy are also console errors
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
    """Path of Chromium under one of the names that distributions use, or None."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


# module scope, not session: while playwright runs, asyncio.run() of other tests fails in this thread
@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """A browser, started once for a module's tests."""
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
    """Opens a test's pages, and fails the test for their problems."""
    browsing = Browsing(chromium)
    try:
        yield browsing
        browsing.check()
    finally:
        browsing.close()
