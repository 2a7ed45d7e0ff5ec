"""glibc's malloc in a server that runs for months: freed memory goes back to the system."""

import ctypes
import sys

LARGE = 4 << 20  # bytes: larger blocks get their own mapping; free memory above this at the top of an arena is returned
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD of malloc.h


def return_freed_memory() -> bool:
    """Fixes malloc's two thresholds at LARGE; False where there is no mallopt (macOS, musl).

    Without this, glibc raises both with every large block that is freed, to 32 and 64 MiB: request bodies and arrays of
    some megabytes then come from the arenas of the server's threads, which fragment and grow for as long as it runs.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    return bool(mallopt(_MMAP_THRESHOLD, LARGE)) and bool(mallopt(_TRIM_THRESHOLD, LARGE))
