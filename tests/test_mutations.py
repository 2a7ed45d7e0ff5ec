"""A fault changes one expression of a module and no other."""

import ast
from typing import Any

import pytest
from mutations import changed, compiled


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a < b", "a <= b"),
        ("a is not None", "a is None"),
        ("a + b", "a - b"),
        ("a and b", "a or b"),
        ("not a", "a"),
        ("True", "False"),
        ("7", "8"),
        ("f(a, b, c)", "f(b, a, c)"),
    ],
)
def test_the_fault_of_an_expression(before: str, after: str) -> None:
    fault = changed(ast.parse(before, mode="eval").body)
    assert fault is not None and ast.unparse(fault) == after


@pytest.mark.parametrize("text", ["a", "'words'", "1.5", "f(a)", "f(*a, b)"])
def test_some_expressions_have_none(text: str) -> None:
    assert changed(ast.parse(text, mode="eval").body) is None


def test_one_place_of_a_module_is_changed() -> None:
    source = "N = 1\n\ndef f(a):\n    return (a + 1, a < 3)\n\n@kernel\ndef g(a):\n    return a + 1\n"
    texts: list[str] = []

    def place(number: int, node: ast.expr) -> ast.expr:
        texts.append(ast.unparse(node))
        fault = changed(node)
        return fault if number == 4 and fault is not None else node

    module: dict[str, Any] = {"kernel": lambda function: function}
    exec(compiled(source, "module.py", place), module)
    assert texts == ["1", "a + 1", "3", "a < 3"], "neither of the module itself nor of a kernel"
    assert module["f"](3) == (4, True) and module["g"](3) == 4
