"""How the library says how far it is: the one kind of callback that everything that takes long accepts."""

from collections.abc import Callable

# progress(name, done, total): `done` of `total` units of work are over, `name` is what is worked on (a tensor, a
# kernel). The unit is said where the callback is taken. An exception that it raises ends the work, as Ctrl-C does.
Progress = Callable[[str, int, int], None]
