"""Threads in groups: what every thread has to write is one word, or counter, per group (see execute.py)."""

from .build.jit import device


@device
def n_groups(nth):
    """Groups that nth threads, and so the shares of an op, are divided among."""
    return 1 if nth < 8 else nth // (4 if nth < 32 else 8)
