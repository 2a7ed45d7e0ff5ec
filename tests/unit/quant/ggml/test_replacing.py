"""Files are replaced as a whole: if the writer is killed, the old file survives and leftovers are removed soon."""

import re
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

from hybrid.infer.evaluate.kl_divergence import BaseWriter
from hybrid.infer.memory.state_file import StateHeader, read_state, write_state
from hybrid.quant.ggml import replacing
from hybrid.quant.ggml.errors import StateError
from hybrid.quant.ggml.replacing import Replacement, remove_unfinished, replace_file
from hybrid.quant.ggml.writer import GGUFWriter

KILLED_WHILE_WRITING = """
import os, signal, sys
from pathlib import Path
from hybrid.quant.ggml.replacing import replace_file

def chunks():
    yield b"half of it" * 5000
    os.kill(os.getpid(), signal.SIGKILL)

replace_file(Path(sys.argv[1]), chunks())
"""


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def test_kill_9_while_writing(tmp_path: Path) -> None:
    path = tmp_path / "chat [1].state"  # signs that mean something in patterns
    replace_file(path, [b"old"])
    for _ in range(2):
        killed = subprocess.run([sys.executable, "-c", KILLED_WHILE_WRITING, str(path)], check=False)
        assert killed.returncode == -signal.SIGKILL
        assert path.read_bytes() == b"old"
    assert len(names(tmp_path)) == 2, "the second attempt removed what the first one left"
    replace_file(path, [b"new ", b"one"])
    assert path.read_bytes() == b"new one" and names(tmp_path) == [path.name]


def test_what_is_being_written_stays(tmp_path: Path) -> None:
    path = tmp_path / "s"

    def chunks() -> Iterator[bytes]:
        yield b"a"
        remove_unfinished(tmp_path, "*")
        replace_file(path, [b"another writer"])
        yield b"b"

    for other in (".s.0123456.tmp", ".s.0123456g.tmp", "s.01234567.tmp"):
        (tmp_path / other).write_bytes(b"of somebody else")
    (tmp_path / ".s.01234567.tmp").write_bytes(b"left behind")
    replace_file(path, chunks())
    assert path.read_bytes() == b"ab"
    assert names(tmp_path) == [".s.0123456.tmp", ".s.0123456g.tmp", "s", "s.01234567.tmp"]


@pytest.fixture
def small_files() -> Iterator[None]:
    """Writing more than 8 KiB to a file fails, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, ignored)


def test_no_room(tmp_path: Path, small_files: None) -> None:
    path, header = tmp_path / "s", StateHeader("00ff", "jamba F32", 2)
    write_state(path, header, [("tokens", np.arange(2, dtype=np.int32))])
    with pytest.raises(StateError, match=r"s: cannot be written: File too large\.$"):
        write_state(path, header, [("tokens", np.zeros(4096, np.int32))])
    assert names(tmp_path) == ["s"]
    with read_state(path) as state:
        assert state["tokens"].tolist() == [0, 1]


def test_a_new_file_that_is_taken_for_one_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process may see a file before it is locked, and remove it."""
    flock, removed = replacing.flock, []

    def late(fd: int, how: int) -> None:
        if not removed:
            removed.extend(tmp_path.iterdir())
            remove_unfinished(tmp_path, "s")
        flock(fd, how)

    monkeypatch.setattr(replacing, "flock", late)
    replace_file(tmp_path / "s", [b"whole"])
    assert len(removed) == 1 and names(tmp_path) == ["s"] and (tmp_path / "s").read_bytes() == b"whole"


# Files that are not replaced, and why.
NOT_REPLACED = {
    "library/pipeline/target.py": "a temporary copy, changed in place while a model reads it",
    "cli/completion/reply.py": "nothing: /dev/null",
    "library/hub/download.py": "bytes are appended under the hub's lock, and hashed before the file gets its name",
    "cli/commands/embed.py": "a device or a pipe, which cannot be replaced",
    "infer/answers/prompt_files/prompt_files.py": "answers are appended",
    "infer/memory/store_file.py": "one unfinished file at a time, in a folder that is locked as a whole",
    "infer/memory/store_folder.py": "the lock itself",
    "infer/stages/stage_files.py": "the lock of a folder",
    "infer/bench/benchmark.py": "a switch of the kernel's in /proc",
    "quant/rewrite.py": "a number of eight bytes is overwritten",
}


def test_whatever_writes_a_file_writes_a_replacement() -> None:
    root = Path(__file__).resolve().parents[4]
    writes = re.compile(
        r"""\.write_(?:text|bytes)\(|\.tofile\(|\bjson\.dump\(|O_CREAT
        |\bopen\((?:[^()]*,\s*)?(?:mode=)?["'](?:[wax]|r[bt]?\+)|\bmemmap\(.*["'](?:r|w)\+|\bnp\.savez?\((?!buffer\b)
        |shutil\.(?:copy|move)|\.rename\(|NamedTemporaryFile|mkstemp""",
        re.VERBOSE,
    )
    writers = {
        str(path.relative_to(root))
        for stage in ("cli", "convert", "infer", "library", "quant")
        for path in (root / stage).rglob("*.py")
        if path.name != "replacing.py" and writes.search(path.read_text(encoding="utf-8"))
    }
    assert writers == set(NOT_REPLACED)


def test_many_writers(tmp_path: Path) -> None:
    texts = [bytes([i]) * 20000 for i in range(32)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda text: replace_file(tmp_path / "s", [text[:9000], text[9000:]]), texts))
    assert (tmp_path / "s").read_bytes() in texts and names(tmp_path) == ["s"]


WRITERS: dict[str, Callable[[Path], AbstractContextManager[Any]]] = {
    "any file": Replacement,
    "GGUF": lambda path: GGUFWriter(path, "llama"),
    "base": lambda path: BaseWriter(path, [1, 2, 3, 4], 2, 8),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", WRITERS)
def test_an_interrupt_at_any_line(name: str, tmp_path: Path) -> None:
    """On the way into `with` and out of it: no unfinished file remains after the process."""
    # In a thread of its own: CPython keeps an exception as the one being handled if a trace raises at its `except`.
    with ThreadPoolExecutor(1) as pool:
        lines = pool.submit(_interrupt_at_every_line, WRITERS[name], tmp_path).result()
    assert (tmp_path / "out").exists() and lines > 20
    with pytest.raises(ValueError) as raised:
        raise ValueError
    assert raised.value.__context__ is None  # hidden from later tests


def _interrupt_at_every_line(writer_of: Callable[[Path], AbstractContextManager[Any]], folder: Path) -> int:
    """Interrupt a writer's `with` at one more line in each run until a run finishes; return the number of lines."""
    with writer_of(folder / "out"):
        pass  # the first run compiles and caches, in thousands of lines; the next run would end within them
    (folder / "out").unlink()
    lines, ended = 0, False
    while not ended:
        left = lines

        def trace(_frame: FrameType, event: str, _value: object) -> Any:
            nonlocal left
            if event == "line":
                left -= 1
                if left < 0:
                    sys.settrace(None)
                    raise KeyboardInterrupt
            return trace

        writer, before, begun = writer_of(folder / "out"), sys.gettrace(), False
        sys.settrace(trace)
        try:
            with writer:
                begun = True
            ended = left >= 0
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(before)
        assert begun or not list(folder.iterdir()), f"line {lines} on the way in"
        replacing._remove_own()
        assert {path.name for path in folder.iterdir()} <= {"out"}, f"line {lines}"
        getattr(writer, "_target", writer).discard()  # closes the file
        lines += 1
    return lines
