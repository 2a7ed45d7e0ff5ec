"""The size of a method's or filter's result, computed before it runs."""

from typing import Any

import pytest

from hybrid.infer.text.template_budget import Budget, LimitError
from hybrid.infer.text.template_sizes import FILTERS, check_call, formatted

LONG = "a\t\n" * 100_000


@pytest.mark.parametrize(
    ("form", "mark", "values", "passes"),
    [
        ("%s **%s**", "%", (LONG, LONG), True),
        ("%(a)s" * 60, "%", {"a": LONG}, False),
        ("%s", "%", LONG * 60, False),
        ("%*d", "%", (3, 1), False),
        ("{} {}", "{", [(LONG, LONG), {}], True),
        ("{0}" * 60, "{", [(LONG,), {}], False),
        ("{:{}}", "{", [(1, 9), {}], False),
        ("{:>99999999}", "{", [(1,), {}], False),
    ],
)
def test_formats(form: str, mark: str, values: Any, passes: bool) -> None:
    if passes:
        formatted(Budget(), form, mark, values)
    else:
        with pytest.raises(LimitError):
            formatted(Budget(), form, mark, values)


@pytest.mark.parametrize(
    ("owner", "name", "args"),
    [
        (LONG, "join", (["a"] * 999,)),
        (LONG, "replace", ("a", LONG)),
        ("a", "center", (1 << 20,)),
        (LONG, "expandtabs", (9999,)),
        (LONG * 50, "split", ()),
        (LONG * 50, "splitlines", ()),
        (LONG, "strip", (LONG,)),
        (LONG, "rfind", (LONG,)),
        ([LONG] * 9999, "count", (LONG,)),
    ],
)
def test_methods(owner: Any, name: str, args: tuple[Any, ...]) -> None:
    with pytest.raises(LimitError):
        check_call(Budget(), owner, name, args, {})


def test_methods_that_pass() -> None:
    for name, args in (("strip", ()), ("split", ("\n",)), ("replace", ("a", "b")), ("startswith", ("a",))):
        assert check_call(Budget(), LONG, name, args, {}) == args
    assert check_call(Budget(), "-", "join", (iter("ab"),), {}) == (["a", "b"],)
    assert check_call(Budget(), {}, "get", ("a",), {}) == ("a",)


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("indent", (LONG, 9999)),
        ("indent", (LONG, LONG)),
        ("replace", (None, LONG, "a", LONG)),
        ("batch", ([1], 1 << 20)),
        ("slice", (None, [1], 1 << 20)),
        ("trim", (LONG, LONG)),
        ("round", (1.5, 65)),
        ("title", (LONG * 50,)),
        ("striptags", ("<" * 100_000,)),
        ("escape", ("<" * 8_000_000,)),
    ],
)
def test_filters(name: str, args: tuple[Any, ...]) -> None:
    with pytest.raises(LimitError):
        FILTERS[name](Budget(), *args)
