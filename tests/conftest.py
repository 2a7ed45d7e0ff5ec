"""Fixtures for every shelf: where the data is, seeds, and uninitialised memory that cannot pass for zeros."""

import os

# the tests' float64 models multiply small matrices: threads of OpenBLAS would wait for one another most of the time.
# Read when numpy is imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# ruff: isort: split
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numba  # noqa: F401  before np.empty is replaced: numba registers numpy's functions by identity
import numpy as np
import pytest
from hypothesis import settings

# the same examples everywhere, however slow the machine is
settings.register_profile("everywhere", deadline=None, derandomize=True, database=None)
settings.load_profile("everywhere")

ROOT = Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test that asks for `shared_dir` carries the marker `shared`, so that `make quick` leaves it out."""
    for item in items:
        if "shared_dir" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.shared)


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """The full reference set (checkpoints, vocabularies), beside the checkout."""
    if not (SHARED / "checkpoints").is_dir():
        pytest.skip(f"the full reference set is not at {SHARED.name}/ beside the checkout")
    return SHARED


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """tests/data: small checkpoints, golden values, vocabularies."""
    return ROOT / "tests" / "data"


@pytest.fixture(scope="session")
def bundled() -> Path:
    """The trained Jamba that comes with the package, as a Hugging Face folder."""
    return ROOT / "cli" / "bundled" / "jamba-11m"


@pytest.fixture(scope="session")
def prose() -> Path:
    """The text that demo and tests measure perplexity on."""
    return ROOT / "cli" / "bundled" / "prose.txt"


@pytest.fixture(autouse=True)
def _seeds() -> None:
    random.seed(0)
    np.random.seed(0)


@pytest.fixture(scope="session", autouse=True)
def _empty_is_nan() -> Iterator[None]:
    """`np.empty` hands out NaN: a kernel that reads what nobody wrote shows it in its result."""
    patch = pytest.MonkeyPatch()

    def poisoned(original: Any) -> Any:
        def empty(*args: Any, **kwargs: Any) -> np.ndarray:
            array: np.ndarray = original(*args, **kwargs)
            if array.dtype.kind in "fc":
                array.fill(np.nan)
            return array

        return empty

    patch.setattr(np, "empty", poisoned(np.empty))
    patch.setattr(np, "empty_like", poisoned(np.empty_like))
    yield
    patch.undo()
