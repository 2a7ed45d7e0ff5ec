"""Groups of threads: words and counters that every thread writes exist once per group (see execute.py)."""

from .build.jit import device


@device
def n_groups(nth):
    """Number of groups that `nth` threads, and the `nth` shares of an op, are divided into."""
    return 1 if nth < 8 else nth // (4 if nth < 32 else 8)
