"""Folders of cached machine code: the one for this machine and version, its safety, and removal of old ones.

A folder is named after a digest of our version, numba, LLVM, the CPU and its features. Its files are named after the
kernel and its sources (sources.py): kernels that depend on an edited source are compiled again. The folder is in the
user's cache directory or, if that cannot be written, in the user's own directory under the system's temporary one.
Files in it are executed, so a folder that another user owns or may write is not used.

`about.json` in each folder describes it for people; its modification time is when the folder was last used.
"""

import contextlib
import hashlib
import json
import os
import re
import shutil
import tempfile
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Literal

import llvmlite
import llvmlite.binding as llvm

from hybrid.quant.ggml.code_folders import ENCODERS, encoder_folder, make, trouble
from hybrid.quant.ggml.installed import installed_version
from hybrid.quant.ggml.replacing import Replacement
from hybrid.quant.ggml.user_folders import cache_folder, former_cache_folders

from ..emit.isa import cpu_features, cpu_target, host

ABOUT = "about.json"
KEEP_DAYS = 60  # a folder unused for longer is removed when another is made
KEEP_KERNEL_DAYS = 14  # a kernel unused for longer is removed: its sources were probably edited
_NAME = re.compile("[0-9a-f]{16}")
Which = Literal["current", "old", "all"]


@dataclass(frozen=True)
class Owner:
    """The software that compiled the code of a folder, and the CPU it is for."""

    version: str
    cpu: str
    isa: str
    features: tuple[str, ...]
    target: str
    numba: str
    llvmlite: str

    @property
    def digest(self) -> str:
        """Name of the folder."""
        key = [self.version, self.target, self.numba, self.llvmlite, self.cpu, *self.features]
        return hashlib.sha256(" ".join(key).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class CacheFolder:
    """A folder of machine code. Times are UTC, RFC 3339; values that an older version did not record are empty."""

    path: Path
    in_use: bool
    trouble: str | None
    """Why the folder must not be used, or None."""
    n_kernels: int
    nbytes: int
    last_used: str
    created: str = ""
    version: str = ""
    cpu: str = ""
    isa: str = ""
    features: tuple[str, ...] = ()
    numba: str = ""
    llvmlite: str = ""


@cache
def owner() -> Owner:
    """This version on this CPU."""
    return Owner(
        installed_version("hybrid-lm"),
        cpu_target(),
        host().name,
        tuple(sorted(cpu_features())),
        llvm.get_process_triple(),
        installed_version("numba"),
        llvmlite.__version__,
    )


def roots() -> list[Path]:
    """Directories that may contain the folders, preferred first."""
    # the second adds one level only, because `trouble` checks a folder and its parent
    candidates = [cache_folder() / "kernels", Path(tempfile.gettempdir()) / f"hybrid-lm-{os.geteuid()}"]
    # without a home directory the first would be relative to the current directory
    return [root for root in candidates if root.is_absolute()]


def former_roots() -> list[Path]:
    """Directories that earlier versions used, for `hybrid cache` to show and remove."""
    return [root / "kernels" for root in former_cache_folders() if root.is_absolute()]


@cache
def folder() -> Path | None:
    """The folder in use, made if necessary: the first trusted one that is writable or has kernels; or None."""
    name = owner().digest
    for root in roots():
        place = root / name
        try:
            fresh = make(place)
        except OSError:
            continue
        if trouble(place):
            continue
        if os.access(place, os.W_OK):
            _note_use(place)
            if fresh:
                remove(_unused(root))
            return place
        if any(place.glob("*.bin")):
            return place
    return None


def _note_use(place: Path) -> None:
    """Write `about.json` if it is missing; otherwise, at most once an hour, set its time and remove stale kernels."""
    path = place / ABOUT
    try:
        if path.exists():
            if time.time() - path.stat().st_mtime > 3600:
                os.utime(path)
                _remove_stale(place)
            return
        about = asdict(owner()) | {"created": _utc(time.time())}
        with Replacement(path, mode=0o600, durable=False) as file:
            file.write(json.dumps(about, indent=1).encode())
    except OSError:
        pass  # only people read it


def note_kernel_use(path: Path) -> None:
    """Set the time of a kernel's file to now, at most once a day."""
    try:
        if time.time() - path.stat().st_mtime > 86400:
            os.utime(path)
    except OSError:
        pass  # read-only: nobody will remove it either


def _remove_stale(place: Path) -> None:
    """Remove kernels unused for KEEP_KERNEL_DAYS: edited sources leave some behind."""
    oldest = time.time() - KEEP_KERNEL_DAYS * 86400
    for path in place.glob("*.bin"):
        try:
            if path.stat().st_mtime < oldest:
                path.unlink()
        except OSError:
            continue


def _utc(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _last_used(place: Path) -> float:
    about = place / ABOUT
    return (about if about.exists() else place).stat().st_mtime


def _all(root: Path) -> list[Path]:
    try:
        return sorted(p for p in root.iterdir() if _NAME.fullmatch(p.name) and not p.is_symlink() and p.is_dir())
    except OSError:
        return []


def _unused(root: Path) -> list[Path]:
    oldest = time.time() - KEEP_DAYS * 86400
    unused = []
    for place in _all(root):
        try:
            if place.name != owner().digest and _last_used(place) < oldest:
                unused.append(place)
        except OSError:
            continue  # another process was faster
    return unused


def remove(places: list[Path]) -> None:
    """Remove folders. Processes that loaded code from them continue; files that cannot be removed stay."""
    for place in places:
        shutil.rmtree(place, ignore_errors=True)


def folders() -> list[CacheFolder]:
    """All folders of all versions, most recently used first."""
    ours = [root / owner().digest for root in roots()]
    used = {next((place for place in ours if place.is_dir() and not trouble(place)), None), encoder_folder()}
    known = []
    for root in [*roots(), *(root.parent / ENCODERS for root in roots()[:1]), *former_roots()]:
        for place in _all(root):
            try:
                known.append((_last_used(place), _describe(place, place in used)))
            except OSError:
                continue  # another process has removed it
    return [item for _, item in sorted(known, key=lambda f: -f[0])]


def _describe(place: Path, in_use: bool) -> CacheFolder:
    try:
        about = json.loads((place / ABOUT).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        about = {}
    if not isinstance(about, dict):
        about = {}
    known = {k: str(about.get(k, "")) for k in ("created", "version", "cpu", "isa", "numba", "llvmlite")}
    features = about.get("features", ())
    sizes = {p: p.stat().st_size for p in place.iterdir()}
    return CacheFolder(
        place,
        in_use,
        trouble(place),
        sum(p.suffix in (".bin", ".nbi") for p in sizes),
        sum(sizes.values()),
        _utc(_last_used(place)),
        features=tuple(map(str, features)) if isinstance(features, list | tuple) else (),
        **known,
    )


def clear(which: Which) -> list[CacheFolder]:
    """Remove the folder in use, all other folders ("old"), or all. Returns the removed folders."""
    wanted = [f for f in folders() if which == "all" or f.in_use == (which == "current")]
    remove([f.path for f in wanted])
    for root in former_roots():
        with contextlib.suppress(OSError):  # not empty, or never there
            root.rmdir()
            root.parent.rmdir()
    folder.cache_clear()
    return [f for f in wanted if not f.path.exists()]
