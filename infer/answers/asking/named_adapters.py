"""The adapters of a model by name, and where in a prompt an activated one begins."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count

from hybrid.quant.ggml.errors import UsageError, shown

from ...engine.applied import NONE, Applied
from ...runner import Runner

MOST_NAMED = 10  # in an error


class UnknownAdapterError(UsageError):
    """There is no adapter of this name or number."""


class NamedAdapters:
    """The adapters of a loaded model.

    names  of all, by number; "": of its file, with a number if that is taken; None: all of their files
    base   the name of the model
    Raises UsageError if two have the same name.
    """

    def __init__(self, runner: Runner, names: Sequence[str] | None = None, base: str = "") -> None:
        self.runner, self.files = runner, list(runner.file.adapters)
        self.names = [""] * len(self.files) if names is None else list(names)
        for name in filter(None, self.names):
            if self.names.count(name) > 1 or name == base:
                what = "an adapter and the model" if name == base else "two adapters"
                raise UsageError(f"{what} are called {shown(name)}. Give each a name of its own.")
        for i, file in enumerate(self.files):
            if not self.names[i]:
                stem, taken = file.path.stem, {*self.names, base}
                free = (stem if n == 1 else f"{stem}-{n}" for n in count(1))
                self.names[i] = next(name for name in free if name not in taken)

    def number(self, asked: int | str) -> int:
        """The number of an adapter, given by its number or name. UnknownAdapterError: no adapter has it."""
        if isinstance(asked, int) and 0 <= asked < len(self.names):
            return asked
        if asked in self.names:
            return self.names.index(str(asked))
        some = (self.near(str(asked)) or self.names)[:MOST_NAMED]
        there = f"there are {', '.join(shown(name, 40) for name in some)}" if some else "the model has none"
        raise UnknownAdapterError(f"there is no adapter {shown(asked, 40)}: {there}")

    def near(self, name: str) -> list[str]:
        """Names that are almost this one."""
        import difflib  # slow to import

        return difflib.get_close_matches(name, self.names, 3, 0.75)

    def chosen(self, scales: Mapping[int, float]) -> Applied:
        """The adapters with these scales. UsageError: they cannot be applied together."""
        applied = Applied.of(scales)
        if len(applied.scales) > 1 and any(self.files[number].invocation for number, _ in applied.scales):
            raise UsageError("an activated adapter (aLoRA) is chosen alone.")
        return applied


def of_prompt(runner: Runner, applied: Applied, ids: Sequence[int]) -> Applied:
    """The chosen adapters, for a prompt of these tokens. An activated one begins at the last occurrence of its
    invocation tokens; a prompt without them has no adapter."""
    invocation = runner.file.adapters[applied.scales[0][0]].invocation if applied else ()
    if not invocation:
        return applied
    start = last_occurrence(ids, invocation)
    return NONE if start is None else replace(applied, start=start)


def last_occurrence(ids: Sequence[int], of: Sequence[int]) -> int | None:
    """Where the last `of` in ids begins; None: it does not occur."""
    n, first, wanted = len(of), of[0], list(of)
    starts = (at for at in range(len(ids) - n, -1, -1) if ids[at] == first)
    return next((at for at in starts if list(ids[at : at + n]) == wanted), None)
