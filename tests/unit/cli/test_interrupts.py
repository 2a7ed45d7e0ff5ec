"""Ctrl-C while modules are imported."""

import subprocess
import sys

import pytest

from hybrid.cli import main
from hybrid.cli.interrupts import interrupt_behind


def made_while_interrupted() -> None:
    class Descriptor:
        def __set_name__(self, owner: type, name: str) -> None:
            raise KeyboardInterrupt

    class Owner:
        field = Descriptor()


def test_an_interrupt_inside_set_name_is_found() -> None:
    with pytest.raises((RuntimeError, KeyboardInterrupt)) as caught:
        made_while_interrupted()
    assert isinstance(interrupt_behind(caught.value), KeyboardInterrupt)
    assert interrupt_behind(ValueError("x")) is None


def test_it_ends_with_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(main.typer.main, "get_command", lambda app: made_while_interrupted())
    assert main.run(["cache"]) == 130
    assert capsys.readouterr().err == "interrupted\n"


SWALLOWED = """
import time
from hybrid.cli.interrupts import lose_no_interrupt
class Ends:
    def __del__(self):
        raise KeyboardInterrupt
lose_no_interrupt()
try:
    Ends()
    time.sleep(300)
except KeyboardInterrupt:
    print("heard")
"""


def test_an_interrupt_inside_a_callback_is_not_lost() -> None:
    """Python only prints "Exception ignored in ..." and goes on."""
    done = subprocess.run([sys.executable, "-c", SWALLOWED], capture_output=True, text=True, timeout=240)
    assert (done.stdout, done.stderr) == ("heard\n", "")
