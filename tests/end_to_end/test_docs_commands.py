"""The commands in docs/ work: the blocks of a page, one after the other, in one folder."""

import os
import pty
import re
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import peft_adapters
import pytest
from command_server import CommandServer
from hub_server import Hub

from hybrid.convert.checkpoint import Checkpoint

pytestmark = pytest.mark.exhaustive

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(path.name for path in (ROOT / "docs").glob("*.md"))
# commands of the other pages are covered by tests of single commands
SHORT = {"README.md", "memory.md", "names.md", "scripts.md", "trouble.md"}
_BLOCK = re.compile(r"^```(sh|python|shell-session)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks(page: str) -> list[tuple[str, str]]:
    """(language, code) of a page, in order."""
    return _BLOCK.findall((ROOT / "docs" / page).read_text(encoding="utf-8"))


@pytest.fixture
def folder(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    commands: CommandServer,
    bundled: Path,
    prose: Path,
    files: dict[str, Path],
) -> Path:
    """The files that docs/ assumes: model.gguf, text.txt, path/to/checkpoint, path/to/adapter, and the command."""
    page = getattr(request.node, "callspec", None) and request.node.callspec.params["page"]
    work = tmp_path / "work"
    (work / "path" / "to").mkdir(parents=True)
    shutil.copyfile(files["bf16"], work / "model.gguf")
    # 1400 tokens; 600 for commands that read the text once for each matrix
    text = prose.read_text(encoding="utf-8")[: 2200 if page == "quantize.md" else 5000]
    (work / "text.txt").write_text(text, encoding="utf-8")
    shutil.copytree(bundled, work / "path" / "to" / "checkpoint")
    rng, thin = np.random.default_rng(6), {}
    for name, tensor in Checkpoint(bundled).tensors.items():
        if name.endswith(("in_proj.weight", "o_proj.weight")):
            rows, n = tensor.shape
            thin[name] = tuple(rng.standard_normal(shape).astype(np.float32) / 16 for shape in ((2, n), (rows, 2)))
    peft_adapters.write(work / "path" / "to" / "adapter", thin, 2)
    (tmp_path / "bin").mkdir()
    commands.write_command(tmp_path / "bin" / "hybrid", tmp_path)
    commands.write_command(tmp_path / "bin" / "python", tmp_path)
    return work


@pytest.fixture(scope="module", autouse=True)
def hub(small_checkpoint: Path, small: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The models that pages name, on a hub on loopback; all are the same model."""
    cache = tmp_path_factory.mktemp("hub")
    granite = "ibm-granite/granite-4.0-h-tiny"
    with Hub() as hub, pytest.MonkeyPatch.context() as patch:
        hub.add(granite, {path.name: path for path in small_checkpoint.iterdir() if path.is_file()})
        hub.add(f"{granite}-GGUF", {"tiny-Q4_K_M.gguf": small["q8_0"], "tiny-Q8_0.gguf": small["q8_0"]})
        for variable, value in hub.environment(cache).items():
            patch.setenv(variable, value)
        yield


@pytest.fixture(scope="module")
def commands(hub: None) -> Iterator[CommandServer]:
    """Starts after `hub`, whose addresses some modules read at import."""
    with CommandServer() as server:
        yield server


def environment(folder: Path) -> dict[str, str]:
    path = f"{folder.parent / 'bin'}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "TERM": "dumb", "XDG_STATE_HOME": str(folder.parent / "state")}


def run(code: str, language: str, folder: Path) -> subprocess.CompletedProcess[str]:
    program = ["bash", "-e", "-o", "pipefail", "-c"] if language == "sh" else [folder.parent / "bin" / "python", "-c"]
    return subprocess.run(
        [*program, code],
        cwd=folder,
        env=environment(folder),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def transcript(code: str) -> list[tuple[str, str]]:
    """(command, its expected output) pairs of a block of commands after `$`."""
    parts = re.split(r"^\$ (.*)\n", code, flags=re.MULTILINE)
    assert not parts[0], f"it begins with {parts[0]!r}, expected a command"
    return list(zip(parts[1::2], parts[2::2], strict=True))


def is_as_said(printed: str, said: str) -> bool:
    """Whether the output matches. `...` stands for any text; a line of only `...` for any lines."""
    pattern = re.escape(said).replace(re.escape("...\n"), "(?:.*\n)*?").replace(re.escape("..."), ".*")
    return re.fullmatch(pattern, printed) is not None


def play(code: str, folder: Path) -> str:
    """Run the commands of a transcript; return the first difference, or ""."""
    for command, said in transcript(code):
        done = subprocess.run(
            ["bash", "-c", f"{{ {command}\n}} 2>&1"],
            cwd=folder,
            env=environment(folder),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if (done.returncode == 0) == said.startswith("error: ") or not is_as_said(done.stdout, said):
            return f"$ {command}\n{done.stdout}(exit code {done.returncode}) is not\n{said}"
    return ""


def test_transcripts_are_compared(tmp_path: Path) -> None:
    assert transcript("$ a\n$ b\nx\ny\n") == [("a", ""), ("b", "x\ny\n")]
    for printed, said, alike in (
        ("a 12 b\n", "a ... b\n", True),
        ("a\nb\nc\n", "...\nc\n", True),
        ("c\n", "...\nc\n", True),
        ("a\nb\n", "a ...\n", False),
        ("a\n", "b\n", False),
        ("a\nb\n", "a\n", False),
        ("x.y\n", "x+y\n", False),
        ("a: b, c\n", "a: ...\n", True),
        ("a\nb\n", "a...b\n", False),
        ("", "...\n", True),
    ):
        assert is_as_said(printed, said) == alike, (printed, said)
    (tmp_path / "bin").mkdir()
    (tmp_path / "work").mkdir()
    assert play("$ echo a; false\na\n", tmp_path / "work").startswith("$ echo a; false\na\n(exit code 1) is not")
    assert play("$ echo a\nb\n", tmp_path / "work") and not play("$ echo a\na\n$ true\n", tmp_path / "work")


def chat(line: str, folder: Path) -> tuple[int, str]:
    """Run a command in a terminal, type something and leave: (exit code, output of the terminal)."""
    terminal, other_end = pty.openpty()
    ends = {"stdin": other_end, "stdout": other_end, "stderr": other_end}
    process = subprocess.Popen(
        ["bash", "-c", line], cwd=folder, env=environment(folder), start_new_session=True, **ends
    )
    os.close(other_end)
    said, shown = [b"/stats\r", b"Hello\r", b"/exit\r"], b""
    deadline = time.monotonic() + 200
    try:
        while process.poll() is None and time.monotonic() < deadline:
            if select.select([terminal], [], [], 0.5)[0]:
                try:
                    shown += os.read(terminal, 65536)
                except OSError:  # Linux: the other end is closed
                    break
            elif said and re.search(rb"> (?:\x1b\S*)?$", shown):  # the prompt, and half a second of silence
                os.write(terminal, said.pop(0))
        return process.wait(timeout=200), shown.decode(errors="replace")
    finally:
        process.kill()
        process.wait()
        os.close(terminal)


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=() if page in SHORT else pytest.mark.matrix)
        for page in PAGES
        if blocks(page) and page != "chat.md"
    ],
)
def test_page(page: str, folder: Path) -> None:
    for language, code in blocks(page):
        if language == "shell-session":
            wrong = play(code, folder)
            assert not wrong, f"docs/{page}:\n{wrong}"
            continue
        done = run(code, language, folder)
        assert done.returncode == 0, f"docs/{page}:\n{code}\n{done.stdout[-500:]}\n{done.stderr[-1000:]}"
        assert "Traceback" not in done.stderr


@pytest.mark.matrix
def test_chats(folder: Path) -> None:
    lines = [line for kind, code in blocks("chat.md") for line in code.splitlines() if kind == "sh"]
    assert any("--continue" in line for line in lines) and any("--context-shift" in line for line in lines)
    for line in lines:
        # an answer of 8 tokens is enough
        code, shown = chat(re.sub(r"hybrid run \S+", r"\g<0> -n 8", line), folder)
        assert code == 0 and "error" not in shown, f"docs/chat.md: {line}\n{shown}"
        assert "hybrid run" not in line or ("Hello" in shown and "saved to" in shown), f"docs/chat.md: {line}\n{shown}"


def test_no_page_clears_the_kernels_of_this_machine() -> None:
    """The kernel cache is the only thing that the pages' commands share with the user: such a block needs `console`."""
    assert not any("cache clear" in code for page in PAGES for _, code in blocks(page))


def test_pages_have_commands() -> None:
    using = ("chat", "gguf", "lora", "measure", "models", "quantize", "scripts", "states")
    assert {f"{name}.md" for name in using} <= {page for page in PAGES if any(kind == "sh" for kind, _ in blocks(page))}


def test_a_command_that_fails_is_seen(folder: Path) -> None:
    for code in (
        "hybrid run none.gguf -p x\ntrue",
        "hybrid inspect none.gguf | cat",
        "hybrid inspect --no-such-option",
    ):
        assert run(code, "sh", folder).returncode != 0
    assert run("import none", "python", folder).returncode != 0
