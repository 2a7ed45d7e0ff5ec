"""Files are made once, by one of several processes; again for another key; and removed when unused."""

import os
import subprocess
import sys
from pathlib import Path

import made_models
import pytest
from made_models import KEEP_DAYS, ROOT, made_in, sources

SCRIPT = """
import sys
from pathlib import Path
from made_models import made_in

def make(path: Path) -> None:
    with open(sys.argv[1] + "/calls", "a") as calls:
        calls.write("made\\n")
    sys.stdin.read(1)
    path.write_text("whole")

print("ready", flush=True)
print(made_in(Path(sys.argv[1]) / "folder", "name", "key", make).read_text())
"""


def test_one_process_makes_and_the_others_wait(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SCRIPT, str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests")}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "env": environment}
    processes = [subprocess.Popen(command, text=True, **pipes) for _ in range(3)]  # type: ignore[call-overload]
    assert [process.stdout.readline() for process in processes] == ["ready\n"] * 3
    for process in processes:  # only now can one of them finish
        process.stdin.write("x")
        process.stdin.flush()
    assert [process.communicate()[0] for process in processes] == ["whole\n"] * 3
    assert (tmp_path / "calls").read_text() == "made\n"


def test_a_key_of_its_own_is_a_file_of_its_own(tmp_path: Path) -> None:
    first = made_in(tmp_path, "name", "1", lambda path: path.write_text("one"))
    second = made_in(tmp_path, "name", b"2", lambda path: path.write_text("two"))
    assert (first.read_text(), second.read_text(), first.name) == ("one", "two", "name")
    assert first.stat().st_mode & 0o777 == 0o444


def test_what_failed_is_made_again(tmp_path: Path) -> None:
    def fails(path: Path) -> None:
        path.write_text("half")
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="the disk is full"):
        made_in(tmp_path, "name", "key", fails)
    made = made_in(tmp_path, "name", "key", lambda path: path.mkdir())
    assert made.is_dir() and not list(made.iterdir())


def test_what_nobody_asked_for_is_removed(tmp_path: Path) -> None:
    old = made_in(tmp_path, "old", "key", lambda path: path.write_text("old"))
    kept = made_in(tmp_path, "kept", "key", lambda path: path.write_text("kept"))
    os.utime(old.parent, (0, 0))
    made_models._remove_old.cache_clear()
    assert made_in(tmp_path, "kept", "key", lambda path: path.write_text("again")).read_text() == "kept"
    assert not old.exists() and kept.exists() and KEEP_DAYS >= 1


def test_sources_are_told_apart_by_their_content() -> None:
    assert sources("convert") == sources("convert") != sources("quant")
    assert sources("tests/made_models.py") != sources("tests/test_made_models.py")
