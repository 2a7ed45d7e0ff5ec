"""A limit on this process's address space, so that a test which would take gigabytes fails instead."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def at_most(nbytes: int) -> Iterator[None]:
    """Limit the address space to the currently mapped size plus `nbytes` bytes. Linux only."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + nbytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
