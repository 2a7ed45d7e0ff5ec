"""Times the page of `hybrid serve` in Chromium on loopback: until one can write, empty and with 1 000 stored messages.

    .venv/bin/python tests/page_load.py [RUNS]

Prints medians and spreads of the milliseconds from the navigation until the field for questions has the focus. The
first visit of a profile ("cold") finds an empty cache; later visits ask the server whether cached files are still
current.
"""

import statistics
import sys
from contextlib import closing
from typing import Any

from chat_page import WIDE, ChatPage, long_chat
from page_pictures import browser, bundled
from scripted_chat import WITH_TOOLS, served

READY = """async () => {
  while (document.activeElement?.id !== 'question') await new Promise(requestAnimationFrame);
  return performance.now();
}"""
DRAWN = """async () => {
  while (document.querySelectorAll('.message').length < 1000) await new Promise(requestAnimationFrame);
  await new Promise(requestAnimationFrame);
  return performance.now();
}"""


def told(name: str, times: list[float]) -> None:
    print(f"{name:32} {statistics.median(times):6.0f} ms ({min(times):.0f} to {max(times):.0f})")


def main(runs: int) -> None:
    """Print the measurements."""
    with bundled() as model, closing(served(model, WITH_TOOLS)) as server, browser(server) as browsing:

        def visit(context: Any, until: str) -> float:
            page = browsing.visit(context, server)
            took: float = page.evaluate(until)
            page.close()
            return took

        browsing.visit(browsing.context(server), server).evaluate(READY)  # warms up the browser itself
        told("cold", [visit(browsing.context(server, viewport=WIDE), READY) for _ in range(runs)])
        context = browsing.context(server, viewport=WIDE)
        visit(context, READY)
        told("warm", [visit(context, READY) for _ in range(runs)])
        chat = ChatPage(browsing.visit(context, server))
        chat.bring(long_chat(1000))
        told("warm, 1 000 messages: ready", [visit(context, READY) for _ in range(runs)])
        told("warm, 1 000 messages: all there", [visit(context, DRAWN) for _ in range(runs)])


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
