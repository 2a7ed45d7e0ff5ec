"""Standard streams that were closed before the program started."""

import subprocess
import sys

import pytest

# a program that uses all three streams and reports in the first file that it opens
SAYS = """
import os, sys
from hybrid.cli.standard_streams import open_missing
open_missing()
seen = [stream.fileno() for stream in (sys.stdin, sys.stdout, sys.stderr)]
print("note", file=sys.stderr, flush=True)
try:
    print("result", flush=True)
except BrokenPipeError:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    seen.append("broken pipe")
with open(sys.argv[1], "w") as file:
    print(seen, sys.stdin.read() == "", file=file)
"""


@pytest.mark.parametrize(
    ("closing", "out", "err", "seen"),
    [
        (">&-", "", "note\n", "[0, 1, 2, 'broken pipe'] True\n"),
        ("2>&-", "result\n", "", "[0, 1, 2] True\n"),
        ("<&-", "result\n", "note\n", "[0, 1, 2] True\n"),
        ("<&- >&- 2>&-", "", "", "[0, 1, 2, 'broken pipe'] True\n"),
    ],
)
def test_closed_streams_are_opened(
    tmp_path_factory: pytest.TempPathFactory, closing: str, out: str, err: str, seen: str
) -> None:
    """Otherwise the first opened file gets the closed stream's number, and notes go to stdout."""
    file = tmp_path_factory.mktemp("streams") / "seen"
    script = f'exec "$0" -c "$1" "$2" {closing}'
    done = subprocess.run(
        ["sh", "-c", script, sys.executable, SAYS, str(file)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, out, err)
    assert file.read_text() == seen


@pytest.mark.parametrize("command", ["cache list", "--version", "cache --help"])
def test_a_command_whose_result_nobody_can_read_ends_as_with_a_broken_pipe(command: str) -> None:
    script = f'"$0" -m hybrid.cli {command} >&-'
    done = subprocess.run(["sh", "-c", script, sys.executable], capture_output=True, text=True, timeout=240)
    assert (done.returncode, done.stderr) == (141, "")
