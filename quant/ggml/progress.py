"""Progress of the library: the one kind of callback that all long operations accept."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

# progress(name, done, total): `done` of `total` units of work are done, now working on `name` (a tensor, a kernel).
# The functions that take a callback say its unit. An exception that it raises ends the work, as Ctrl-C does.
Progress = Callable[[str, int, int], None]

# stage(label, unit): for work of several stages. Returns a context manager: the stage lasts as long as its `with`
# block, which gets the stage's Progress.
Stage = Callable[[str, str], AbstractContextManager[Progress]]


def silent(label: str, unit: str) -> AbstractContextManager[Progress]:
    """A `Stage` that reports nothing."""
    return nullcontext(lambda name, done, total: None)
