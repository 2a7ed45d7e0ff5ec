"""Signals that end a command leave no unfinished file."""

import gc
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from hybrid.cli import main
from hybrid.quant.ggml.replacing import Replacement


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
    gc.unfreeze()


def test_nothing_is_searched_for_garbage_at_exit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(main, "run", lambda argv: 0)
    with pytest.raises(SystemExit):
        main.main()
    assert gc.get_freeze_count() > 1000


def ends_while_writing(number: int, path: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    """The exit code of a command that gets a signal while it writes a file."""

    def writes(argv: object) -> int:
        try:
            with Replacement(path) as file:
                file.write(b"whole")
                signal.raise_signal(number)
        except KeyboardInterrupt:
            return 130
        return 0

    monkeypatch.setattr(main, "run", writes)
    with pytest.raises(SystemExit) as end:
        main.main()
    return end.value.code


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_no_unfinished_file_stays(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    assert ends_while_writing(number, tmp_path / "q.gguf", monkeypatch) == 128 + number
    assert list(tmp_path.iterdir()) == []


def test_under_nohup_the_command_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    assert ends_while_writing(signal.SIGHUP, tmp_path / "q.gguf", monkeypatch) == 0
    assert (tmp_path / "q.gguf").read_bytes() == b"whole"
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


def test_a_signal_after_the_terminal_is_gone_keeps_its_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Writing to a terminal that has hung up raises OSError."""

    def gone(text: str) -> None:
        raise OSError(5, "Input/output error")

    def interrupted(app: object) -> None:
        raise KeyboardInterrupt("terminated")

    monkeypatch.setattr("hybrid.cli.console.note", gone)
    monkeypatch.setattr(main.typer.main, "get_command", interrupted)
    assert main.run(["cache"]) == 130
