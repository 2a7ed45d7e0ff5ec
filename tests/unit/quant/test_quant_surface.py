"""The names that `hybrid.quant` and `hybrid.convert` offer: complete, and imported only on demand."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from hybrid import convert, quant

FOLDER = Path(quant.__path__[0])


def test_every_name_is_there() -> None:
    assert {name: getattr(quant, name) for name in quant.__all__}.keys() == quant._MODULE_OF.keys()
    assert all(hasattr(convert, name) for name in convert.__all__)
    with pytest.raises(AttributeError, match=r"module 'hybrid\.quant' has no attribute 'no_such_name'"):
        quant.no_such_name  # noqa: B018


def test_type_checkers_see_the_same() -> None:
    seen = {
        (node.module, alias.name)
        for node in ast.walk(ast.parse((FOLDER / "__init__.py").read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and node.level == 1
        for alias in node.names
    }
    assert seen == {(module, name) for name, module in quant._MODULE_OF.items()}


def test_no_module_is_called_like_a_name() -> None:
    """`hybrid.quant.NAME` would become the module once it is imported."""
    assert not {path.stem for path in FOLDER.iterdir()} & set(quant.__all__)


@pytest.mark.parametrize(
    ("code", "never"),
    [
        ("import hybrid.quant.ggml.errors", {"numpy", "hybrid.quant.policy", "hybrid.quant.ggml.reader"}),
        ("from hybrid.quant import *; from hybrid.quant import target", {"numba", "llvmlite"}),
        ("from hybrid.convert import *", {"numba", "llvmlite", "hybrid.quant.policy"}),
    ],
)
def test_what_is_not_used_is_not_imported(code: str, never: set[str]) -> None:
    program = f"{code}\nimport sys\nprint(*({never} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=True)
    assert done.stdout.split() == []
