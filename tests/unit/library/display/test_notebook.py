"""The progress bar in a notebook, with functions like a kernel's, and with IPython's where installed."""

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from hybrid.display import notebook
from hybrid.display.screen import ProgressBar

Shown = list[tuple[str, dict[str, str]]]


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Shown:
    """What a notebook displays, in order."""
    shown: Shown = []

    class Handle:
        def update(self, bundle: dict[str, str], raw: bool) -> None:
            assert raw
            shown.append(("update", bundle))

    def display(bundle: dict[str, str], raw: bool, display_id: bool) -> Handle:
        assert raw and display_id
        shown.append(("display", bundle))
        return Handle()

    ipython: Any = ModuleType("IPython")
    ipython.get_ipython = lambda: SimpleNamespace(kernel=object())
    module: Any = ModuleType("IPython.display")
    module.display = display
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    return shown


def test_one_cell_is_drawn_again_and_cleared(kernel: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notebook, "SECONDS", 0.0)
    with ProgressBar("reading", "tokens", delay=0) as bar:
        bar.step(10, 40)
        bar.step(20, 40)
        bar("<b>", 40, 40)
    assert [how for how, _ in kernel] == ["display", "update", "update", "update"]
    assert 'value="0.2500"' in kernel[0][1]["text/html"] and "10 of 40 tokens" in kernel[0][1]["text/plain"]
    assert "tokens/s" in kernel[1][1]["text/plain"] and "s left" in kernel[1][1]["text/plain"]
    assert "&lt;b&gt;" in kernel[2][1]["text/html"], "names come from files"
    assert kernel[3][1] == {"text/html": "", "text/plain": ""}


def test_short_work_and_close_steps_draw_nothing(kernel: Shown) -> None:
    with ProgressBar("reading", "tokens") as bar:
        bar.step(1, 2)
    assert kernel == []
    with ProgressBar("reading", "tokens", delay=0) as bar:
        for i in range(100):
            bar.step(i, 100)
    assert len(kernel) < 20


def test_a_shell_in_a_terminal_is_no_notebook(kernel: Shown) -> None:
    sys.modules["IPython"].get_ipython = lambda: SimpleNamespace()  # type: ignore[attr-defined]
    assert not notebook.is_notebook()
    sys.modules["IPython"].get_ipython = lambda: None  # type: ignore[attr-defined]
    assert not notebook.is_notebook()


def test_outside_of_ipython(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    assert not notebook.is_notebook() and "IPython" not in sys.modules


def test_the_real_display_takes_it() -> None:
    """With IPython's own functions, where installed."""
    interactive = pytest.importorskip("IPython.core.interactiveshell")
    shell = interactive.InteractiveShell.instance()
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(shell, "kernel", object(), raising=False)
            with ProgressBar("reading", "tokens", delay=0) as bar:
                bar.step(1, 2)
    finally:
        interactive.InteractiveShell.clear_instance()
