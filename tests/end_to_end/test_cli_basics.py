"""The command line without a model: help, version, errors in one line, exit codes, nothing heavy imported."""

import importlib
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from hybrid.cli.main import COMMANDS, load, run
from hybrid.infer.kernels.emit.isa import host


def hybrid(*args: str | Path, **options: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hybrid.cli", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, **options)  # type: ignore[call-overload,no-any-return]


def one_line_error(err: str) -> str:
    assert err.startswith("error: "), err
    assert err.count("\n") == 1, err
    assert "Traceback" not in err
    return err.removeprefix("error: ").rstrip("\n")


def test_help_names_every_command() -> None:
    result = hybrid("--help")
    assert result.returncode == 0
    for name, line in COMMANDS.items():
        assert f"{name} " in result.stdout
        assert line in result.stdout, "cut off: make the line shorter"


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_says_what_the_command_says(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    function = getattr(importlib.import_module(f"hybrid.cli.commands.{name}"), name)
    assert (function.__doc__ or "").splitlines()[0] == COMMANDS[name]
    assert load(name).name == name
    assert run([name, "--help"]) == 0
    assert f"Usage: hybrid {name}" in capsys.readouterr().out


def test_help_imports_nothing_heavy() -> None:
    """This keeps `hybrid --help` under 0.25 s (the time itself is in benchmarks/RESULTS.md)."""
    code = "import sys, hybrid.cli.main as m; m.run(['--help']); print(*sys.modules, sep='\\n', file=sys.stderr)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240, check=True)
    modules = set(result.stderr.split())
    for heavy in ("numpy", "numba", "llvmlite", "jinja2", "rich", "prompt_toolkit", "tokenizers", "safetensors"):
        assert heavy not in modules, f"hybrid --help imports {heavy}"


def test_version() -> None:
    result = hybrid("--version")
    assert result.returncode == 0
    assert result.stdout.startswith("hybrid 0.")
    assert f"Python {sys.version_info.major}.{sys.version_info.minor}" in result.stdout
    assert f"\ncode path {host().name} " in result.stdout
    for package in ("numba", "llvmlite"):
        assert f"{package} {version(package)}" in result.stdout


def test_no_arguments_is_help_and_exit_code_2() -> None:
    result = hybrid()
    assert result.returncode == 2
    assert "Commands:" in result.stderr


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (["frobnicate"], 2, "No such command 'frobnicate'"),
        (["quantise"], 2, "No such command 'quantise'. Did you mean 'quantize'? See hybrid --help."),
        (["run", "-n", "many"], 2, "'--n-predict': expected a whole number. See hybrid run --help."),
        (["run", "--temp", "hot"], 2, "'--temp': expected a number."),
        (["cache", "burn"], 2, "'burn' is not one of 'list', 'path', 'clear'"),
        (["convert"], 2, "Missing argument 'DIR|FILE': the checkpoint to convert."),
        (["--frobnicate"], 2, "No such option: --frobnicate"),
        (["convert", "--frobnicate"], 2, "No such option: --frobnicate. See hybrid convert --help."),
        (["quantize"], 2, "IN"),
        (["inspect"], 2, "FILE"),
        (["perplexity"], 2, "-f"),
        (["inspect", "missing.gguf"], 2, "missing.gguf does not exist"),
        (["quantize", "missing.gguf", "out.gguf", "Q8_0"], 2, "missing.gguf does not exist"),
        (["quantize", "a.gguf", "b.gguf", "Q9_9"], 2, "Q9_9"),
        (["run", "missing.gguf", "-p", "x"], 2, "missing.gguf: no such file or folder"),
        (["run", "-p", "x", "-f", "y"], 2, "-p and -f"),
        (["run", "-f", "missing.txt"], 2, "missing.txt cannot be read"),
        (["run", "-n", "-2", "-p", "x"], 2, "-n"),
        (["perplexity", "-f", "missing.txt"], 2, "missing.txt cannot be read"),
        (
            ["perplexity", "model.gguf", "a.txt", "-f", "b.txt"],
            2,
            "a.txt and -f b.txt are both given. Use one of them.",
        ),
        (["bench", "-p", "1-x"], 2, "-p 1-x"),
        (["bench", "-p", "0", "-n", "0"], 2, "nothing to measure"),
        (["bench", "--shape", "jamba-900b"], 2, "jamba-900b"),
        (["demo", "extra"], 2, "extra"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_errors_are_one_line(
    args: list[str],
    code: int,
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert run(args) == code
    captured = capsys.readouterr()
    assert says in one_line_error(captured.err)
    assert captured.out == ""
    assert list(tmp_path.iterdir()) == [], "an error left something behind"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty"),
        (b"not a model at all, only some text", "is not a GGUF file"),
        (b"GGUF\x03\x00\x00\x00" + b"\xff" * 16, ""),
        (b"GGUF\x00\x00\x00\x03" + b"\x00" * 16, "big-endian"),
        (b"GGUF\x63\x00\x00\x00" + b"\x00" * 16, "version 99"),
    ],
)
@pytest.mark.parametrize("command", ["inspect", "quantize"])
def test_damaged_files(
    command: str, content: bytes, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every command prints the reader's own message; the reader's tests have the other sixty cases."""
    damaged = tmp_path / "damaged.gguf"
    damaged.write_bytes(content)
    args = {"inspect": ["inspect", damaged], "quantize": ["quantize", damaged, tmp_path / "out.gguf", "Q8_0"]}[command]
    assert run([str(a) for a in args]) == 1
    message = one_line_error(capsys.readouterr().err)
    assert says in message
    assert "damaged.gguf" in message
    assert list(tmp_path.iterdir()) == [damaged]


def test_a_name_with_a_terminal_escape_is_shown_harmlessly(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", str(tmp_path / "a\x1b[31m\nb.gguf")]) == 2
    assert "\x1b" not in one_line_error(capsys.readouterr().err)


def test_invalid_utf8_says_where(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = tmp_path / "latin1.txt"
    text.write_bytes("caf\xe9 au lait".encode("latin-1"))
    for args in (["perplexity", "-f", str(text)], ["run", "-f", str(text)]):
        assert run(args) == 2
        assert "latin1.txt is not UTF-8: byte 0xe9 at offset 3" in one_line_error(capsys.readouterr().err)


def test_no_space_left_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def full(*args: object, **options: object) -> None:
        raise OSError(28, "No space left on device", "out.gguf")

    monkeypatch.setattr("hybrid.quant.quantization.quantize", full)
    assert run(["quantize", "in.gguf", "out.gguf", "Q8_0"]) == 1
    assert one_line_error(capsys.readouterr().err) == "out.gguf: No space left on device."


def test_bugs_keep_their_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object, **options: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("hybrid.quant.quantization.quantize", broken)
    with pytest.raises(ZeroDivisionError):
        run(["quantize", "in.gguf", "out.gguf", "Q8_0"])


def test_ctrl_c_is_quiet(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(*args: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("hybrid.quant.quantization.quantize", interrupted)
    assert run(["quantize", "in.gguf", "out.gguf", "Q8_0"]) == 130
    assert capsys.readouterr() == ("", "interrupted\n")


def test_a_closed_pipe_is_quiet(data_dir: Path) -> None:
    """`hybrid bench --list-shapes | head -0`"""
    process = subprocess.Popen(
        [sys.executable, "-m", "hybrid.cli", "bench", "--list-shapes"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    err = process.stderr.read()
    process.stderr.close()
    assert process.wait(timeout=240) == 141
    assert err == b""
