"""Where machine code is cached: trusted folders only, start on any machine, listing and clearing."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hybrid.infer.kernels import execute
from hybrid.infer.kernels.attention.rope import rope
from hybrid.infer.kernels.build import cache_folders
from hybrid.infer.kernels.build.cache_folders import (
    ABOUT,
    KEEP_DAYS,
    KEEP_KERNEL_DAYS,
    clear,
    folder,
    folders,
    owner,
    roots,
)
from hybrid.quant.ggml.code_folders import trouble

FILES = [f"{k.file}.bin" for k in (execute.advance, rope)]
COMPILE = """
import sys, numpy as np
from hybrid.infer.kernels import execute
from hybrid.infer.kernels.attention.rope import rope
from hybrid.infer.kernels.build import jit
from hybrid.infer.kernels.build.cache_folders import folder
kernels = [rope, execute.advance]
jit.compile_kernels(kernels)
print(folder(), sum(k.from_cache for k in kernels))
"""


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, Path]]:
    """The user's cache and the temporary root."""
    pair = tmp_path / "cache" / "kernels", tmp_path / "tmp"
    monkeypatch.setattr(cache_folders, "roots", lambda: list(pair))
    monkeypatch.setattr(cache_folders, "former_roots", lambda: [tmp_path / "former" / "kernels"])
    folder.cache_clear()
    yield pair
    folder.cache_clear()


def test_the_folder_is_made_for_the_user_alone(places: tuple[Path, Path]) -> None:
    cache_path = folder()
    assert cache_path == places[0] / owner().digest
    assert trouble(cache_path) is None
    assert cache_path.stat().st_mode & 0o777 == 0o700
    about = json.loads((cache_path / ABOUT).read_text())
    assert about["cpu"] == owner().cpu
    assert about["isa"] == owner().isa
    assert about["version"] == owner().version
    assert about["features"] == list(owner().features)
    assert about["created"].endswith("Z")


@pytest.mark.parametrize("mode", [0o777, 0o720, 0o702])
def test_a_folder_that_others_can_write_is_not_used(places: tuple[Path, Path], mode: int) -> None:
    mine = places[0] / owner().digest
    mine.mkdir(parents=True)
    mine.chmod(mode)
    (mine / "kernel.bin").write_bytes(b"theirs")
    assert trouble(mine) == "it can be written by others"
    assert folder() == places[1] / owner().digest
    refused = next(f for f in folders() if f.path == mine)
    assert (refused.in_use, refused.trouble) == (False, "it can be written by others")


def test_a_folder_of_another_user_is_not_used(places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    cache_path = folder()
    assert cache_path is not None
    folder.cache_clear()
    me = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: me + 1)
    assert trouble(cache_path) == f"it belongs to another user ({me})"
    assert folder() is None


def test_a_link_to_a_folder_is_not_used(places: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    places[0].mkdir(parents=True)
    (places[0] / owner().digest).symlink_to(tmp_path / "elsewhere")
    assert folder() == places[1] / owner().digest


def test_the_mode_of_the_folder_above_is_mended(places: tuple[Path, Path]) -> None:
    places[0].mkdir(parents=True)
    places[0].chmod(0o775)
    assert folder() == places[0] / owner().digest
    assert places[0].stat().st_mode & 0o777 == 0o700


def test_a_read_only_folder_is_used_when_it_has_kernels(
    places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = folder()
    assert mine is not None
    writable = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != mine and writable(path, mode))
    folder.cache_clear()
    assert folder() == places[1] / owner().digest
    (mine / "kernel.bin").write_bytes(b"")
    folder.cache_clear()
    assert folder() == mine


def test_folders_unused_for_long_go_when_another_is_made(places: tuple[Path, Path]) -> None:
    old, recent, foreign = (places[0] / name for name in ("0123456789abcdef", "fedcba9876543210", "something else"))
    for place in (old, recent, foreign):
        place.mkdir(parents=True)
        (place / ABOUT).write_text("{}")
        (place / "kernel.bin").write_bytes(b"x")
    long_ago = time.time() - (KEEP_DAYS + 1) * 86400
    os.utime(old / ABOUT, (long_ago, long_ago))
    os.utime(foreign / ABOUT, (long_ago, long_ago))
    assert folder() is not None
    assert not old.exists()
    assert recent.exists()
    assert foreign.exists()


def test_kernels_unused_for_long_go(places: tuple[Path, Path]) -> None:
    """Kernels of edited sources go; a kernel that is read counts as used."""
    cache_path = folder()
    assert cache_path is not None
    stale, used = cache_path / "stale.bin", cache_path / "used.bin"
    long_ago = time.time() - (KEEP_KERNEL_DAYS + 1) * 86400
    for path in (stale, used, cache_path / ABOUT):
        path.touch()
        os.utime(path, (long_ago, long_ago))
    cache_folders.note_kernel_use(used)
    folder.cache_clear()
    assert folder() == cache_path
    assert not stale.exists()
    assert used.exists()


def test_the_time_of_use_is_kept(places: tuple[Path, Path]) -> None:
    cache_path = folder()
    assert cache_path is not None
    yesterday = time.time() - 86400
    os.utime(cache_path / ABOUT, (yesterday, yesterday))
    folder.cache_clear()
    folder()
    assert (cache_path / ABOUT).stat().st_mtime > yesterday + 80_000


def test_listing_and_clearing(places: tuple[Path, Path]) -> None:
    other = places[0] / "0123456789abcdef"
    other.mkdir(parents=True)
    (other / "a.bin").write_bytes(bytes(100))
    (other / ABOUT).write_text('{"version": "0.0.9", "features": 7}')
    mine = folder()
    assert mine is not None
    assert {f.path: f.in_use for f in folders()} == {mine: True, other: False}
    about = {f.path: f for f in folders()}
    assert about[other].n_kernels == 1
    assert about[other].nbytes == 100 + len((other / ABOUT).read_bytes())
    assert about[other].version == "0.0.9"
    assert about[mine].cpu == owner().cpu
    assert [f.path for f in clear("old")] == [other]
    assert mine.exists()
    assert not other.exists()
    assert [f.path for f in clear("current")] == [mine]
    assert not mine.exists()
    assert folder() == mine
    assert [f.path for f in clear("all")] == [mine]
    assert clear("all") == []


def started(**env: str) -> subprocess.Popen[str]:
    base = {k: v for k, v in os.environ.items() if k not in ("HOME", "XDG_CACHE_HOME", "TMPDIR")}
    return subprocess.Popen(
        [sys.executable, "-c", COMPILE], env=base | env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def ended(process: subprocess.Popen[str]) -> tuple[str, int]:
    """(folder, number of kernels that came from it)"""
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    place, n = out.split()
    return place, int(n)


@pytest.mark.slow
def test_processes_that_start_at_once_share_a_cache(tmp_path: Path) -> None:
    pair = [started(XDG_CACHE_HOME=str(tmp_path)) for _ in range(2)]
    (place, _), (second, _) = (ended(process) for process in pair)
    assert place == second
    names = sorted(p.name for p in Path(place).iterdir())
    assert names == sorted([ABOUT, *FILES])
    assert ended(started(XDG_CACHE_HOME=str(tmp_path))) == (place, 2)


@pytest.mark.slow
def test_without_a_home_the_temporary_directory_serves(tmp_path: Path) -> None:
    """/dev/null is no directory for any user."""
    place, n = ended(started(HOME="/dev/null", TMPDIR=str(tmp_path)))
    assert n == 0
    assert Path(place).is_relative_to(tmp_path)
    assert {p.name for p in Path(place).iterdir()} == {ABOUT, *FILES}


@pytest.mark.slow
def test_without_any_place_kernels_are_compiled_in_memory() -> None:
    code = "import tempfile; tempfile.tempdir = '/dev/null/tmp'\n" + COMPILE
    env = {k: v for k, v in os.environ.items() if k != "XDG_CACHE_HOME"} | {"HOME": "/dev/null"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["None", "0"]


def test_a_home_that_nobody_knows_is_not_taken_for_a_relative_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_folders, "cache_folder", lambda: Path("~/.cache/hybrid"))
    assert all(root.is_absolute() for root in roots())
    assert len(roots()) == 1


def test_what_an_earlier_version_kept_elsewhere(places: tuple[Path, Path], tmp_path: Path) -> None:
    """An old folder is not used, even with the same digest; it is listed, cleared as old, and its parent is removed."""
    former = tmp_path / "former" / "kernels" / owner().digest
    former.mkdir(parents=True)
    (former / "a.bin").write_bytes(bytes(10))
    assert folder() == places[0] / owner().digest
    assert [(f.path, f.in_use) for f in folders() if f.path == former] == [(former, False)]
    assert [f.path for f in clear("current")] == [places[0] / owner().digest] and former.exists()
    assert [f.path for f in clear("old")] == [former]
    assert not (tmp_path / "former").exists()
