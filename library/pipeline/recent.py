"""The user's GGUF files that were run lately, for `hybrid models` and completion.

<state>/models.json    {PATH: seconds since the epoch}, the MOST newest
"""

import json
import time
from contextlib import suppress
from pathlib import Path

from hybrid.quant.ggml.replacing import replace_file

from .. import cache_paths

MOST = 50
EVERY = 3600  # seconds before a use is noted again


def _file() -> Path:
    return cache_paths.state_dir() / "models.json"


def paths() -> dict[Path, float]:
    """Files that still exist, with the time of their last run; the newest first."""
    try:
        noted = json.loads(_file().read_bytes())
        times = {Path(path): float(seconds) for path, seconds in noted.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}
    return {path: times[path] for path in sorted(times, key=lambda p: -times[p]) if path.is_file()}


def _is_gguf(path: Path) -> bool:
    if not path.is_file():  # reading a pipe would block and consume it
        return False
    with path.open("rb") as file:
        return file.read(4) == b"GGUF"


def note(path: Path) -> None:
    """Notes that `path` is run now, if it is a GGUF file outside our cache."""
    with suppress(OSError):
        whole = path.absolute()
        if whole.is_relative_to(cache_paths.cache_dir()):
            return
        known, now = paths(), time.time()
        if now - known.get(whole, 0) < EVERY:
            return
        if not _is_gguf(whole):
            return
        newest = [(whole, now), *((other, seconds) for other, seconds in known.items() if other != whole)][:MOST]
        _file().parent.mkdir(parents=True, exist_ok=True)
        replace_file(_file(), [json.dumps({str(other): seconds for other, seconds in newest}).encode()])
