"""Fixtures for all tests: data folders, seeds, and uninitialised memory that cannot pass for zeros."""

import math
import mmap
import os

# The tests' float64 models multiply small matrices, where threads of OpenBLAS mostly wait for each other. The variable
# is read when numpy is imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# No test asks the hub of Hugging Face or reads this user's copy of it; tests of downloads start one on loopback.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_HUB_CACHE"] = os.devnull + "/no cache"

# ruff: isort: split
import gc
import random
import signal
import tempfile
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import IO, Any

import forced_isa
import marks
import numba  # noqa: F401  before np.empty is replaced: numba registers numpy's functions by identity
import numpy as np
import pytest
from hypothesis import settings

# A shell's background jobs ignore Ctrl-C; so would all processes that tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# Under nohup the hangup of a terminal is ignored; the same holds.
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def _sync(fd: int) -> None:
    """Stands in for fsync: tests need not survive a loss of power, and each small model would wait for the disk twice.
    Still fails for a file that is not open."""
    os.fstat(fd)


# before modules of hybrid are imported: some keep a reference to these functions
os.fsync = _sync
if hasattr(os, "fdatasync"):
    os.fdatasync = _sync

# the same examples on every machine, however slow
settings.register_profile("everywhere", deadline=None, derandomize=True, database=None)
settings.load_profile("everywhere")

ROOT = Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return True if marks.ignores(collection_path, config.option.markexpr) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    marks.mark(items)
    if seed := os.environ.get("ORDER"):
        marks.shuffle(items, seed)


# until collection ends: its objects stay alive, and searching them for garbage took a seventh of its time
gc.disable()


def pytest_collection_finish() -> None:
    """Move collected objects out of reach of full garbage collections, and enable these again."""
    gc.freeze()
    gc.enable()


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """One more than the cores, because a test sometimes waits for a server or a process. As many as the cores in the
    inner loop, where each worker's collection of all tests takes as long as running them."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores if "not exhaustive" in config.option.markexpr else cores + 1


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the code paths that the test executed to its report, for pytest-xdist's main process."""
    report = yield
    report.user_properties += [("code path", path) for path in sorted(forced_isa.ran)]
    forced_isa.ran.clear()
    return report


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print which code paths were executed, and which were not: not requested, or not executable here."""
    from hybrid.infer.kernels.emit.isa import host

    passed = terminalreporter.stats.get("passed", [])
    noted = {path for report in passed for what, path in report.user_properties if what == "code path"}
    parts = [f"code paths: {host().name} (native)", *sorted(noted - {host().name})]
    cannot = [path for path in forced_isa.FEATURES if not forced_isa.executable(path) and path != host().name]
    left = [path for path in forced_isa.FEATURES if path not in (*noted, *cannot, host().name)]
    line = ", ".join(parts)
    line += f"; not part of this run: {', '.join(left)}" if left else ""
    line += f"; not executable here: {', '.join(cannot)}" if cannot else ""
    terminalreporter.write_line(line)
    if seed := os.environ.get("ORDER"):
        terminalreporter.write_line(f"in random order: ORDER={seed}")


@pytest.fixture(autouse=True)
def no_faults(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test in which a side path had a fault, unless it is marked `faults`. Each test begins without any."""
    from hybrid.infer.faults import SidePath

    yield
    found = {name: path.n_faults for name, path in SidePath.all.items() if path.n_faults}
    for name in found:
        SidePath.all[name].n_faults = 0
    assert not found or request.node.get_closest_marker("faults"), f"faults beside answers: {found}"


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """The full reference set (checkpoints, vocabularies), beside the checkout. Skips the test without it."""
    if not (SHARED / "checkpoints").is_dir():
        pytest.skip(f"the full reference set is not at {SHARED.name}/ beside the checkout")
    return SHARED


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """tests/data: small checkpoints, golden values, vocabularies."""
    return ROOT / "tests" / "data"


@pytest.fixture(scope="session")
def bundled() -> Path:
    """The package's trained Jamba, as a Hugging Face folder."""
    return ROOT / "library" / "bundled" / "jamba-11m"


@pytest.fixture(scope="session")
def prose() -> Path:
    """The text on which demo and tests measure perplexity."""
    return ROOT / "library" / "bundled" / "prose.txt"


@pytest.fixture(scope="session", autouse=True)
def _own_state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Note runs of models in a temporary folder, not in this user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(autouse=True)
def _seeds() -> None:
    random.seed(0)
    np.random.seed(0)


MOST_MAPPED = 64 << 20  # poisoned bytes of a region


class _MappedPoison:
    """`mapped_zeros` with bytes of 255, which are NaN in floats of every type, at the same cost: private mappings of
    one file. A model maps rows for hundreds of states, of which a test touches few; filling all of them took half the
    time of the command-line tests."""

    def __init__(self, original: Callable[..., np.ndarray], file: IO[bytes]) -> None:
        self.original, self.file, self.size = original, file, 0

    def __call__(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        nbytes = math.prod(shape) * np.dtype(dtype).itemsize
        if not 0 < nbytes <= MOST_MAPPED:
            return self.original(shape, dtype)
        if nbytes > self.size:
            self.file.write(b"\xff" * (nbytes - self.size))
            self.file.flush()
            self.size = nbytes
        region = mmap.mmap(self.file.fileno(), nbytes, access=mmap.ACCESS_COPY)
        return np.frombuffer(region, dtype).reshape(shape)


def _poison(array: np.ndarray) -> None:
    """Fill floats with NaN, and integers with bytes of 255, which are NaN if read as floats of any type."""
    kind = array.dtype.kind
    if kind in "fciu":
        array.fill(np.nan if kind in "fc" else -1 if kind == "i" else np.iinfo(array.dtype).max)


@pytest.fixture(scope="session", autouse=True)
def _unwritten_is_nan() -> Iterator[None]:
    """Make unwritten memory NaN, so that a kernel's result shows if it reads any: the results of `np.empty`, the keys,
    values and states of models, cos and sin of positions, and a program's arena, also after its last run."""
    from hybrid.infer.engine import engine
    from hybrid.infer.layers import attention as layers
    from hybrid.infer.memory import attention, mapped, recurrent

    patch = pytest.MonkeyPatch()

    def poisoned(original: Any) -> Any:
        def empty(*args: Any, **kwargs: Any) -> np.ndarray:
            array: np.ndarray = original(*args, **kwargs)
            _poison(array)
            return array

        return empty

    patch.setattr(np, "empty", poisoned(np.empty))
    patch.setattr(np, "empty_like", poisoned(np.empty_like))
    run = engine.Engine._run

    def with_poisoned_arena(self: Any, program: Any, *args: Any, **kwargs: Any) -> None:
        _poison(program.arena)
        run(self, program, *args, **kwargs)

    patch.setattr(engine.Engine, "_run", with_poisoned_arena)
    with tempfile.TemporaryFile() as file:
        mapped_poison = _MappedPoison(mapped.mapped_zeros, file)
        for memory in (attention, recurrent, layers):
            patch.setattr(memory, "mapped_zeros", mapped_poison)
        yield
    patch.undo()
