"""Models and other read-only files for tests, each made once on this machine.

    path = made("jamba-F32.gguf", sources("convert") + str(config), lambda path: convert(checkpoint, path))

They are in the user's cache folder, like compiled kernels; workers and later runs find them by name and key. The key
contains everything that a file depends on, also the sources that make it.
"""

import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from fcntl import LOCK_EX, LOCK_NB, LOCK_SH, flock
from functools import cache
from pathlib import Path

from platformdirs import user_cache_path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = user_cache_path("hybrid-tests").resolve() / "made"  # resolved at import, because some tests set XDG_CACHE_HOME
KEEP_DAYS = 3  # files unused for this long are removed; a run is shorter


@cache
def sources(*places: str) -> str:
    """A digest of Python sources: files of the checkout, or folders with everything below them."""
    digest = hashlib.sha256()
    for place in places:
        path = ROOT / place
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            digest.update(f"\0{file.relative_to(ROOT)}\0".encode() + file.read_bytes())
    return digest.hexdigest()


def made(name: str, key: bytes | str, make: Callable[[Path], object]) -> Path:
    """A file or folder called `name` that `make(path)` wrote: now, or earlier in a process with the same key."""
    return made_in(FOLDER, name, key, make)


def made_in(folder: Path, name: str, key: bytes | str, make: Callable[[Path], object]) -> Path:
    """`made`, in another folder."""
    _remove_old(folder)
    digest = hashlib.sha256(f"{name}\0".encode() + (key.encode() if isinstance(key, str) else key)).hexdigest()[:24]
    place, unfinished = folder / digest, folder / f"{digest}.unfinished"
    # the removal of old files locks the first file exclusively: it never runs during this
    with _locked(folder / "lock", LOCK_SH), _locked(folder / f"{digest}.lock", LOCK_EX):
        if not place.exists():
            shutil.rmtree(unfinished, ignore_errors=True)  # left by a process that was killed
            unfinished.mkdir()
            make(unfinished / name)
            for path in unfinished.rglob("*"):
                if path.is_file():
                    path.chmod(0o444)
            unfinished.rename(place)
        os.utime(place)
    return place / name


@contextmanager
def _locked(path: Path, how: int) -> Iterator[None]:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        flock(fd, how)
        yield
    finally:
        os.close(fd)


@cache  # once per process
def _remove_old(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with suppress(BlockingIOError), _locked(folder / "lock", LOCK_EX | LOCK_NB):
        for place in folder.iterdir():
            if place.name != "lock" and place.stat().st_mtime < time.time() - KEEP_DAYS * 86400:
                shutil.rmtree(place) if place.is_dir() else place.unlink()
