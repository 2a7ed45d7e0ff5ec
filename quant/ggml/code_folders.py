"""Folders of machine code in the user's cache: made for this user alone, and refused if others may write there.

Files in them are executed, so a folder that another user owns or may write is not used.
"""

import hashlib
import os
import stat
from functools import cache
from pathlib import Path

from .installed import installed_version
from .user_folders import cache_folder

ENCODERS = "encoders"


def encoder_folder() -> Path:
    """The folder for the code of the encoders (kernels/kept_code.py); it need not exist."""
    return cache_folder() / ENCODERS / _digest()


@cache
def _digest() -> str:
    """Digest of the sources of this package, numba and LLVM."""
    here = Path(__file__).parent
    key = hashlib.sha256(f"{installed_version('numba')} {installed_version('llvmlite')}".encode())
    for path in sorted(here.rglob("*.py")):
        key.update(f"\0{path.relative_to(here)}\0".encode())
        key.update(path.read_bytes())
    return key.hexdigest()[:16]


def make(place: Path) -> bool:
    """Make the folder and its missing parents, for this user alone. True if the folder did not exist."""
    missing = [p for p in (place, *place.parents) if not p.exists()]
    for path in reversed(missing):
        path.mkdir(mode=0o700, exist_ok=True)
    above = place.parent.lstat()
    if above.st_uid == os.geteuid() and above.st_mode & 0o022:
        place.parent.chmod(0o700)  # made by an older version under a generous umask
    return place in missing


def trouble(place: Path) -> str | None:
    """Why machine code in this folder must not be executed (another user owns or may write it), or None."""
    for path, what in ((place, "it"), (place.parent, "the folder above")):
        try:
            status = path.lstat()
        except OSError as error:
            return f"{what} cannot be read: {error.strerror}"
        if not stat.S_ISDIR(status.st_mode):
            return f"{what} is not a folder"
        if status.st_uid != os.geteuid():
            return f"{what} belongs to another user ({status.st_uid})"
        if status.st_mode & 0o022:
            return f"{what} can be written by others"
    return None
