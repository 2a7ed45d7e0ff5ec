"""How many threads convert and quantize with."""

import os

MAX_THREADS = 512  # beyond that, a slip


def cpus() -> int:
    """Processors that this process may use, where the system tells (macOS does not: all)."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
