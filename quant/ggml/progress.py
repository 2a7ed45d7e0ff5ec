"""Progress of the library: the one kind of callback that all long operations accept."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

# progress(name, done, total): `done` of `total` units of work are over, `name` is what is worked on (a tensor, a
# kernel). The unit is said where the callback is taken. An exception that it raises ends the work, as Ctrl-C does.
Progress = Callable[[str, int, int], None]

# stage(label, unit): for work of several stages. What it returns is a context: the stage lasts as long as its `with`
# block, and gets its Progress there.
Stage = Callable[[str, str], AbstractContextManager[Progress]]


def silent(label: str, unit: str) -> AbstractContextManager[Progress]:
    """A `Stage` that reports nothing."""
    return nullcontext(lambda name, done, total: None)
