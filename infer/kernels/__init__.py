"""Kernels and the emitter that writes them."""

import hashlib
from pathlib import Path


def _digest() -> str:
    digest = hashlib.sha256()
    for source in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(source.read_bytes())
    return digest.hexdigest()


# Names the folder of the compiled kernels (see jit.py). Taken before any module of this package is read, so that
# machine code of an old emitter cannot be stored under the hash of one that is edited while a process runs.
SOURCE_DIGEST = _digest()
