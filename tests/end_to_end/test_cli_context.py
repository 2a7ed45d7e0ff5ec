"""The context size of commands: the line about it, and refused values."""

import subprocess
import sys
from pathlib import Path

import pytest
import tiny_models

from hybrid.cli.main import run

pytestmark = pytest.mark.exhaustive

linux = pytest.mark.skipif(sys.platform != "linux", reason="other systems do not enforce RLIMIT_AS")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model with a context of 2^24 tokens, of which each takes 256 bytes."""
    tiny = tiny_models.FAMILIES["llama"]()
    tiny.set(".context_length", 1 << 24)
    return tiny.write(tmp_path / "m.gguf")


def limited(model: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """`hybrid run` of one token under `ulimit -v 1048576`."""
    command = [
        sys.executable,
        "-m",
        "hybrid.cli",
        "run",
        str(model),
        "--raw",
        "-p",
        "abc",
        "-n",
        "1",
        "-t",
        "1",
        *options,
    ]
    shell = ["sh", "-c", 'ulimit -v 1048576 && exec "$@"', "sh", *command]
    return subprocess.run(shell, capture_output=True, text=True, check=False)


@linux
def test_a_shorter_context_is_said_in_one_line(model: Path) -> None:
    done = limited(model)
    assert done.returncode == 0, done.stderr
    said = [line for line in done.stderr.splitlines() if "context" in line]
    assert len(said) == 1
    assert " tokens: the 16777216 that the model was trained for need 4." in said[0] and said[0].endswith("are free")


@linux
def test_a_context_that_cannot_be_mapped(model: Path) -> None:
    done = limited(model, "-c", "9000000")
    assert done.returncode == 1 and done.stdout == ""
    last = done.stderr.splitlines()[-1]
    assert last.startswith("error: out of memory: ") and "cannot be mapped: Cannot allocate memory" in last
    assert last.endswith("Use a smaller context (-c), or a smaller file (`hybrid quantize`).")
    assert "Traceback" not in done.stderr


def test_what_is_asked_for_is_taken(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["run", str(model), "--raw", "-p", "abc", "-n", "1", "-t", "1", "-c"]
    assert run([*command, "1000"]) == 0
    assert "context" not in capsys.readouterr().err
    assert run([*command, str(1 << 25), "--kv-type", "q8_0"]) in (0, 2)  # refused if less than 5 GiB are free
    assert f"{1 << 25} tokens" in capsys.readouterr().err
    assert run([*command, str((1 << 31) - 1), "--kv-type", "f32"]) == 2  # one tebibyte
    assert "1 sequence of 2147483647 tokens need" in capsys.readouterr().err
