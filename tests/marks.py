"""Assigns tests to runs by their marks, folders and fixtures."""

import random
import re
from collections import Counter
from pathlib import Path

import pytest

# parts of the long suite: `make test` leaves them out, `make test-all PART=...` runs them
PARTS = ("paths", "emulated", "cluster", "page", "packaging", "matrix", "soak")
EACH = 8  # `make quick` runs one of 8 cases of a test

OF_A_FILE = re.compile(r"^pytestmark = .*$", re.M)
MARK = re.compile(r"\bmark\.(\w+)")


def is_left_out(text: str, expression: str) -> bool:
    """Whether no test of a file with this text would run, decided without importing it: imports are most of the time of
    collection. May be False in doubt. expression: of `-m`."""
    if expression in PARTS:
        return expression not in MARK.findall(text)
    if " or " in expression:
        return False
    marks = {mark for line in OF_A_FILE.findall(text) for mark in MARK.findall(line)}
    if marks & set(PARTS):
        marks.add("long")
    return bool(marks & set(re.findall(r"\bnot (\w+)", expression)))


def ignores(path: Path, expression: str) -> bool:
    """`is_left_out` for a path."""
    return bool(expression) and path.match("test_*.py") and is_left_out(path.read_text(encoding="utf-8"), expression)


def shuffle(items: list[pytest.Item], seed: str) -> None:
    """Shuffle the files, and the tests within each file. The same seed gives the same order."""
    rng = random.Random(seed)
    by_file: dict[Path, list[pytest.Item]] = {}
    for item in items:
        by_file.setdefault(item.path, []).append(item)
    files = list(by_file.values())
    rng.shuffle(files)
    for tests in files:
        rng.shuffle(tests)
    items[:] = [item for tests in files for item in tests]


def mark(items: list[pytest.Item]) -> None:
    """Add the marks that follow from a test's path, fixtures, other marks and parameters."""
    cases: Counter[str] = Counter()
    for item in items:
        if "kernels" in item.path.parts:
            item.add_marker(pytest.mark.kernel)
        if "shared_dir" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.shared)
        if any(item.get_closest_marker(part) for part in PARTS):
            item.add_marker(pytest.mark.long)
        if "[" in item.name and not item.get_closest_marker("every_case") and not _is_slow(item):
            test = item.nodeid.partition("[")[0]
            if cases[test] % EACH:
                item.add_marker(pytest.mark.exhaustive)
            cases[test] += 1


def _is_slow(item: pytest.Item) -> bool:
    return any(item.get_closest_marker(name) for name in ("slow", "exhaustive", "shared", "long"))
