"""A progress bar in a notebook's cell: HTML that is replaced, without widgets."""

import sys
import time
from collections.abc import Callable
from typing import Any

SECONDS = 0.1  # between two updates
Amount = Callable[[float, float, float | None], str]  # (done, total, per second) as text


def is_notebook() -> bool:
    """Whether this process is a notebook's kernel. Imports nothing."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None


class NotebookBar:
    """`show` draws the bar, `stop` removes it; nothing stays in the notebook. amount: see Amount."""

    def __init__(self, amount: Amount) -> None:
        self._amount = amount
        self._cell: Any = None  # IPython's display handle
        self._next = 0.0
        self._begun, self._first, self._last = 0.0, 0, sys.maxsize

    def show(self, label: str, done: int, total: int) -> None:
        """Draws `done` of `total`."""
        from html import escape

        now = time.monotonic()
        if done < self._last:  # another stage, with its own total
            self._begun, self._first = now, done
        self._last = done
        if now < self._next and done < total:
            return
        self._next = now + SECONDS
        rate = (done - self._first) / (now - self._begun) if now > self._begun else 0.0
        share, text = done / total if total else 1.0, self._amount(done, total, rate)
        text += f", {(total - done) / rate:.0f} s left" if rate else ""
        bar = f'<progress value="{share:.4f}" max="1" style="width: 24em; vertical-align: middle"></progress>'
        self._display(f"{escape(label)} {bar} {escape(text)}", f"{label} {share:.0%} {text}")

    def stop(self) -> None:
        if self._cell is not None:
            self._display("", "")

    def _display(self, as_html: str, plain: str) -> None:
        from IPython.display import display

        bundle = {"text/html": as_html, "text/plain": plain}
        if self._cell is None:
            self._cell = display(bundle, raw=True, display_id=True)
        else:
            self._cell.update(bundle, raw=True)
