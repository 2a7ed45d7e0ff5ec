"""Counts how much a method or a filter of a chat template will make or read, before it runs.

Each function takes the budget, then the arguments of the method or filter, and raises LimitError if the result would be
too large. Short texts are not checked, since the results of methods on them are small.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from .template_budget import SMALL, Budget, LimitError

MAX_POWER = 64
MAX_COUNT = 1 << 16  # limit on numbers given to filters and methods: widths, lines, lists
_LINE_ENDS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"  # where str.splitlines splits


def count(value: Any, what: str) -> int:
    """Check a number that a template gives, and return it. Raises LimitError if it is too large."""
    if not isinstance(value, int):
        return 0
    if abs(value) > MAX_COUNT:
        raise LimitError(f"{what} gets the size {value}, more than {MAX_COUNT}")
    return value


def power(value: Any) -> None:
    if not (isinstance(value, int | float) and abs(value) <= MAX_POWER):
        raise LimitError(f"it raises to a power above {MAX_POWER}")


def formatted(budget: Budget, form: str, mark: str, values: Any) -> None:
    """Count `form % values` (mark "%"), or `form.format` with the values (mark "{")."""
    widths = r"%[-#0 +\d.]*\*" if mark == "%" else r"{[^}]*{"  # a width given by a value
    if re.search(r"\d{8}", form) or re.search(widths, form):
        raise LimitError("it formats a value with a width that is not known or too large")
    characters, _ = budget.walk(values)
    times = form.count(mark)
    if mark == "%" and not isinstance(values, Mapping):
        times = 1  # each value is written once
    elif mark == "{" and not re.search(r"{[^}:!{]", form):
        times = 1
    if re.search(r"%[-#0 +\d.]*[ra]" if mark == "%" else r"![ra]", form):
        times *= 10  # escapes
    budget.room(len(form) + sum(map(int, re.findall(r"\d+", form))) + times * characters)


# --- methods ---
def check_call(
    budget: Budget, owner: Any, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[Any, ...]:
    """Count a method call. Returns the arguments, with lists for iterators, which can be read only once."""
    if isinstance(owner, str):
        if name == "join":
            args = tuple(list(value) if isinstance(value, Iterator) else value for value in args)
        check = _METHODS.get(name)
        if check is not None and (len(owner) > SMALL or name in _GROWING):
            check(budget, owner, *args, **kwargs)
        if len(owner) > SMALL:
            budget.touch(len(owner))
    elif isinstance(owner, list | tuple):
        budget.walk(owner, *args)
        for value in args:
            budget.touch(len(value) * len(owner) if isinstance(value, str) else 0)
    elif name == "fromkeys":
        budget.walk(*args)
        budget.pieces(sum(len(value) for value in args if hasattr(value, "__len__")))
    return args


def _join(budget: Budget, owner: str, values: Any = ()) -> None:
    if isinstance(values, str):
        budget.pieces(len(values))
    sizes = [len(value) for value in values if isinstance(value, str)]
    budget.room(sum(sizes) + len(owner) * len(sizes))


def _replace(budget: Budget, owner: str, old: Any = "", new: Any = "", n: Any = -1) -> None:
    if isinstance(old, str) and isinstance(new, str):
        times = owner.count(old)
        budget.room(len(owner) + len(new) * (min(n, times) if isinstance(n, int) and n >= 0 else times))


def _pad(budget: Budget, owner: str, width: Any = 0, *_: Any) -> None:
    budget.room(count(width, "a method"))


def _expandtabs(budget: Budget, owner: str, tabsize: Any = 8) -> None:
    budget.room(len(owner) + owner.count("\t") * max(0, count(tabsize, "a method")))


def _format(budget: Budget, owner: str, *args: Any, **kwargs: Any) -> None:
    formatted(budget, owner, "{", [*args, kwargs])


def _split(budget: Budget, owner: str, sep: Any = None, maxsplit: Any = -1) -> None:
    found = owner.count(sep) if isinstance(sep, str) and sep else len(owner) // 2
    budget.pieces(1 + (min(maxsplit, found) if isinstance(maxsplit, int) and maxsplit >= 0 else found))
    _search(budget, owner, sep)


def _lines(budget: Budget, owner: str, *_: Any, **__: Any) -> None:
    budget.pieces(_n_lines(owner))


def _search(budget: Budget, owner: str, *args: Any) -> None:
    """Count a search from the end, or stripping, which may take the product of the two lengths."""
    if len(owner) > SMALL:
        budget.touch(len(owner) * max((len(value) for value in args if isinstance(value, str)), default=0))


def _striptags(budget: Budget, owner: Any, *_: Any) -> None:
    text = str(owner)
    budget.touch(len(text) * text.count("<"))


_METHODS: dict[str, Callable[..., None]] = {
    "join": _join,
    "replace": _replace,
    **dict.fromkeys(("center", "ljust", "rjust", "zfill"), _pad),
    "expandtabs": _expandtabs,
    **dict.fromkeys(("format", "format_map"), _format),
    **dict.fromkeys(("split", "rsplit"), _split),
    "splitlines": _lines,
    **dict.fromkeys(("strip", "lstrip", "rstrip", "rfind", "rindex", "rpartition"), _search),
    "striptags": _striptags,
}
_GROWING = frozenset(["join", "replace", "center", "ljust", "rjust", "zfill", "expandtabs", "format", "format_map"])


# --- filters ---
def _n_lines(text: str) -> int:
    return 1 + sum(map(text.count, _LINE_ENDS))


def _indent(budget: Budget, text: Any, width: Any = 4, *_: Any, **__: Any) -> None:
    size = len(width) if isinstance(width, str) else max(0, count(width, "the filter 'indent'"))
    text = str(text)
    if len(text) > SMALL:
        budget.pieces(_n_lines(text))
    budget.room(len(text) + size * (1 + _n_lines(text)))


def _replace_filter(budget: Budget, context: Any, text: Any, old: Any, new: Any, n: Any = None) -> None:
    _replace(budget, str(text), str(old), str(new), n)


def _counted(budget: Budget, value: Any, n: Any = 0, *_: Any, **more: Any) -> None:
    for each in (n, *more.values()):
        count(each, "a filter")


def _slice(budget: Budget, context: Any, *args: Any, **more: Any) -> None:
    _counted(budget, *args, **more)


def _truncate(budget: Budget, environment: Any, text: Any, length: Any = 255, *_: Any, **__: Any) -> None:
    _search(budget, str(text), " ")


def _trim(budget: Budget, text: Any, chars: Any = None) -> None:
    _search(budget, str(text), chars)


def _round(budget: Budget, value: Any, precision: Any = 0, *_: Any) -> None:
    power(precision)


def _cut(budget: Budget, text: Any, *_: Any) -> None:
    """Count a filter that cuts a text into pieces."""
    budget.pieces(len(text) if isinstance(text, str) else 0)


def _escape(budget: Budget, text: Any) -> None:
    if len(text := str(text)) > SMALL:
        budget.room(len(text) + 4 * sum(map(text.count, "&<>'\"")))


FILTERS: dict[str, Callable[..., None]] = {
    "indent": _indent,
    "replace": _replace_filter,
    **dict.fromkeys(("batch", "center"), _counted),
    "slice": _slice,
    "truncate": _truncate,
    "trim": _trim,
    "round": _round,
    **dict.fromkeys(("title", "urlencode", "wordcount"), _cut),
    "striptags": _striptags,
    **dict.fromkeys(("e", "escape", "forceescape"), _escape),
}
"""By name of the filter; called with all arguments of the filter, including the ones that jinja2 passes."""
