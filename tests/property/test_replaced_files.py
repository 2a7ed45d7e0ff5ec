"""Every file that replaces another does it in the same way, for all writers: permissions, links, the disk, names."""

import ast
import os
import resource
import signal
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from hybrid.cli.commands import embed
from hybrid.infer.evaluate.kl_divergence import BaseWriter
from hybrid.infer.kernels.build import cache_folders, object_cache
from hybrid.infer.memory.state_file import StateHeader, write_state
from hybrid.quant import Imatrix, InputSums
from hybrid.quant.ggml.errors import HybridError, UsageError
from hybrid.quant.ggml.replacing import replace_file
from hybrid.quant.ggml.split import SplitWriter
from hybrid.quant.ggml.types import GGMLType
from hybrid.quant.ggml.writer import GGUFWriter
from hybrid.quant.imatrix_legacy import write_legacy

ROOT = Path(__file__).resolve().parents[2]
LARGE = 16384  # minimum of bytes that every writer writes


def _gguf(path: Path) -> None:
    with GGUFWriter(path, "test") as writer:
        writer.declare("t", (LARGE // 4,), GGMLType.F32)
        writer.write("t", np.zeros(LARGE // 4, np.float32))


def _split(path: Path) -> None:
    writer = SplitWriter(path, "test")
    writer.declare("t", (LARGE // 4,), GGMLType.F32)
    with writer:
        writer.begin("t")
        writer.put("t", 0, np.zeros(LARGE, np.uint8))
        writer.end("t")


def _imatrix() -> Imatrix:
    return Imatrix({"t": InputSums(np.ones((1, LARGE // 4), np.float32), np.ones(1, np.float32))}, ["text"], 1, 8)


def _base(path: Path) -> None:
    with BaseWriter(path, [1] * 8, 8, LARGE) as places:
        places.write(0, np.ones((3, LARGE), np.float32))


def _state(path: Path) -> None:
    header = StateHeader("00ff", "jamba F32", 2)
    write_state(path, header, [("tokens", np.zeros(LARGE, np.int32))])


WRITERS: dict[str, Callable[[Path], None]] = {
    "bytes": lambda path: replace_file(path, [bytes(LARGE)]),
    "gguf": _gguf,
    "split": _split,
    "imatrix": lambda path: _imatrix().write(path),
    "imatrix.dat": lambda path: write_legacy(_imatrix(), path),
    "kl-divergence base": _base,
    "state": _state,
    "embeddings": lambda path: embed.write(bytes(LARGE), path),
}


@pytest.fixture(params=WRITERS)
def write(request: pytest.FixtureRequest) -> Callable[[Path], None]:
    return WRITERS[request.param]


@pytest.fixture
def umask() -> Iterator[None]:
    before = os.umask(0o027)
    yield
    os.umask(before)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def test_a_new_file_has_the_permissions_of_the_umask(
    write: Callable[[Path], None], tmp_path: Path, umask: None
) -> None:
    write(tmp_path / "f")
    assert mode_of(tmp_path / "f") == 0o640


@pytest.mark.parametrize("mode", [0o600, 0o664, 0o444])
def test_a_replaced_file_keeps_its_permissions(
    write: Callable[[Path], None], tmp_path: Path, umask: None, mode: int
) -> None:
    (tmp_path / "f").write_bytes(b"old")
    (tmp_path / "f").chmod(mode)
    write(tmp_path / "f")
    assert mode_of(tmp_path / "f") == mode and (tmp_path / "f").stat().st_size >= LARGE


def test_a_link_stays(write: Callable[[Path], None], tmp_path: Path) -> None:
    """Also a link that leads to another link, or to nothing yet."""
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir(), there.mkdir()
    (here / "f").symlink_to("g")
    (here / "g").symlink_to(there / "f")
    for _ in range(2):
        write(here / "f")
        assert (here / "f").is_symlink() and (here / "g").is_symlink() and not (there / "f").is_symlink()
        assert (there / "f").stat().st_size >= LARGE
        assert names(here) == ["f", "g"] and names(there) == ["f"]
        (there / "f").write_bytes(b"old")


def test_the_disk_has_the_file_before_its_name_and_then_the_name(
    write: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[str, int, list[str]]] = []
    fsync = os.fsync

    def noted(fd: int) -> None:
        status = os.fstat(fd)
        synced.append(("folder" if stat.S_ISDIR(status.st_mode) else "file", status.st_size, names(tmp_path)))
        fsync(fd)

    monkeypatch.setattr(os, "fsync", noted)
    write(tmp_path / "f")
    (first, size, before), (second, _, after) = synced
    assert (first, second) == ("file", "folder")
    assert size == (tmp_path / "f").stat().st_size and "f" not in before and after == ["f"]


def test_no_room(write: Callable[[Path], None], tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"old")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (LARGE // 2, before[1]))
    try:
        with pytest.raises((HybridError, OSError), match="File too large"):
            write(tmp_path / "f")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert (tmp_path / "f").read_bytes() == b"old" and names(tmp_path) == ["f"]


def test_what_a_killed_writer_left_is_removed(write: Callable[[Path], None], tmp_path: Path) -> None:
    (tmp_path / ".f.0123abcd.tmp").write_bytes(b"half of it")
    (tmp_path / ".g.0123abcd.tmp").write_bytes(b"half of something else")
    write(tmp_path / "f")
    assert names(tmp_path) == [".g.0123abcd.tmp", "f"]


@pytest.mark.parametrize("name", ["n" * 255, "n" * 250 + ".gguf", "ä" * 127])
def test_any_name_that_a_file_may_have(write: Callable[[Path], None], tmp_path: Path, name: str) -> None:
    write(tmp_path / name)
    assert names(tmp_path) == [name]


def test_a_folder_is_not_replaced(write: Callable[[Path], None], tmp_path: Path) -> None:
    (tmp_path / "f").mkdir()
    with pytest.raises(UsageError, match=r"f is not a regular file\. Give another output path\.$"):
        write(tmp_path / "f")
    assert names(tmp_path) == ["f"]


def test_a_pipe_is_not_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "f")
    for name in set(WRITERS) - {"embeddings"}:  # these are written into it
        with pytest.raises(UsageError, match="f is not a regular file"):
            WRITERS[name](tmp_path / "f")
    assert stat.S_ISFIFO((tmp_path / "f").stat().st_mode)


def test_kernels_are_for_their_owner_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_folders, "roots", lambda: [tmp_path / "kernels"])
    cache_folders.folder.cache_clear()
    before = os.umask(0)
    try:
        object_cache.write("name", object_cache.CompiledObject("symbol", b"code"))
        folder = cache_folders.folder()
        assert folder is not None and names(folder) == ["about.json", "name.bin"]
        assert [mode_of(folder / name) for name in names(folder)] == [0o600, 0o600]
    finally:
        os.umask(before)
        cache_folders.folder.cache_clear()


@pytest.mark.exhaustive
def test_there_is_one_writer() -> None:
    """Only that module makes files to rename: `mkstemp`, `NamedTemporaryFile`, `os.replace`, `path.replace(new)`."""
    renaming_files = set()
    for stage in ("benchmarks", "cli", "convert", "infer", "library", "quant"):
        for path in (ROOT / stage).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if not isinstance(node, ast.Call):
                    continue
                called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                renames = called == "replace" and len(node.args) == 1 and not node.keywords  # str.replace has two
                if renames or called in {"mkstemp", "NamedTemporaryFile", "rename"}:
                    renaming_files.add(str(path.relative_to(ROOT)))
    # the prompt cache's store has one unfinished file in a folder that is locked as a whole; a download is appended to
    # a file with the hub's own names and lock
    assert renaming_files == {"quant/ggml/replacing.py", "infer/memory/store_file.py", "library/hub/download.py"}
